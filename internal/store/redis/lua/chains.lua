-- Purpose: keeps the order of messages with an ordering key. The unfinished messages of one key that the broker has not
--   acknowledged yet are a chain, a sorted set of ids by place, in the order in which they were stored. Only the first of a
--   chain may be due as a committed message; the others have the due time BEHIND, which no claim looks at. A message joins
--   the chain after its record is written, and leaves the chain after its index entry is gone.

-- key_of gives the ordering key of a message in a chain, or nil. One command tells most producers, which have no chains.
local function key_of(g, id)
  if g.chains == nil then
    g.chains = call('EXISTS', g.keys) == 1
  end
  return g.chains and ask(g, 'HMGET', g.keys, id) or nil
end

local function first_of(g, key)
  return call('ZRANGE', g.chain .. key, 0, 0)[1]
end

-- behind says whether a message stands behind another one of its chain.
local function behind(g, id)
  local key = key_of(g, id)
  return key and first_of(g, key) ~= id
end

-- turn is when a committed message is due that would be due at a time without its chain.
local function turn(g, s, id, due)
  return s == COMMITTED and behind(g, id) and BEHIND or due
end

-- join puts a message at the end of a chain. A clock that goes back changes no order.
local function join(g, key, id)
  local last = tonumber(call('ZRANGE', g.chain .. key, -1, -1, 'WITHSCORES')[2]) or 0
  call('HSET', g.keys, id, key)
  call('ZADD', g.chain .. key, 'NX', stamp(math.max(now, last + 1)), id)
  g.chains = true
end

-- free makes the first of a chain due if the message has only waited for its turn.
local successors = 0
local function free(g, key)
  local first = first_of(g, key)
  if not first then
    call('HDEL', g.awaited, key)
    return
  end
  local due = call('ZSCORE', g[COMMITTED], first)
  if due and tonumber(due) >= BEHIND then
    call('ZADD', g[COMMITTED], stamp(now), first)
    successors = successors + 1
  end
end

-- leave takes the messages that are not in their old index any more out of their chains.
local function leave(g)
  if #g.leaving == 0 then
    return
  end
  for _, one in ipairs(g.leaving) do
    call('ZREM', g.chain .. one.key, one.id)
    call('HDEL', g.keys, one.id)
  end
  for _, one in ipairs(g.leaving) do
    free(g, one.key)
  end
  g.leaving = {}
end

-- leaves notes that a message leaves its chain with the gathered writes.
local function leaves(g, id)
  local key = key_of(g, id)
  if key then
    g.leaving[#g.leaving + 1] = {key = key, id = id}
  end
end

-- open_before lists the messages before one of a chain that no committed message has waited for yet, at most LOOKED.
local LOOKED = 1000
local function open_before(g, key, id)
  local place, from = call('ZSCORE', g.chain .. key, id), call('HGET', g.awaited, key)
  if not place or from and tonumber(from) >= tonumber(place) then
    return {}
  end
  local found = call('ZRANGEBYSCORE', g.chain .. key, from and '(' .. from or '-inf', '(' .. place, 'LIMIT', 0, LOOKED)
  call('HSET', g.awaited, key, #found < LOOKED and place or call('ZSCORE', g.chain .. key, found[#found]))
  return found
end

-- await makes the questions about the open messages before a committed one due now, and notes since when a successor
-- waits for the answers.
local function await(g, id)
  local key = key_of(g, id)
  local found = key and open_before(g, key, id) or {}
  if #found == 0 then
    return
  end
  local owners = call('HMGET', g.leases, unpack(found))
  for i, due in ipairs(call('ZMSCORE', g[FIRST], unpack(found))) do
    if due then
      call('HSETNX', g.notes .. found[i], 'awaited', now)
      if owners[i] and live(tonumber(due)) then
        call('HSET', g.notes .. found[i], 'hurry', 1) -- its owner asks already
      else
        call('ZADD', g[FIRST], stamp(now), found[i])
      end
    end
  end
end

-- await_all is await for all messages that have come to stand behind others.
local function await_all(g)
  for _, id in ipairs(g.waiting) do
    await(g, id)
  end
  g.waiting = {}
end

-- renew lets an awaited message wait for its answer as long as at first.
local function renew(g, id)
  if key_of(g, id) and call('HEXISTS', g.notes .. id, 'awaited') == 1 then
    call('HSET', g.notes .. id, 'awaited', now)
  end
end
