#!lua
-- Purpose: stores new messages, or tells the state of those that are there.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 how many messages a producer may keep in this shard, 0 for no limit; 2 how many of them a chain may have,
--   0 for no limit; then for each producer: name, number of messages, and for each message: id, digest, milliseconds until
--   it is due, the record with any 13 digits for its time, its ordering key or ""
-- Returns: for each message reply + state; then the time
local most, longest = tonumber(ARGV[1]), tonumber(ARGV[2])
longest = longest > 0 and longest or math.huge
local created = string.format('%013.0f', now)

-- room is how many more messages a producer may have here. An index that cannot be counted refuses nothing: it fails
-- the messages that it concerns.
local function room(g)
  local left = most > 0 and most or math.huge
  local function take(command, key)
    local count = redis.pcall(command, key)
    left = left - (type(count) == 'number' and count or 0)
  end
  for s = 1, most > 0 and #KEPT or 0 do
    take('ZCARD', g[s])
    take('HLEN', g[s] .. CELLS)
  end
  return left
end

-- standsIn says whether an index names one of the messages. A key of another type names none: its error has no items.
local function standsIn(g, index)
  for _, due in ipairs(redis.pcall('ZMSCORE', index, unpack(g.ids))) do
    if due then
      return true
    end
  end
  return false
end

-- stale says whether one of the messages, none of which may have a record, is in an index of another state than new
-- messages. Most states have such an index only while something is wrong.
local function stale(g)
  if standsIn(g, g[COMMITTED]) then
    return true
  end
  local others = {}
  for s = 1, #KEPT do
    if s ~= FIRST and s ~= COMMITTED then
      others[#others + 1] = g[s]
    end
  end
  if call('EXISTS', unpack(others)) > 0 then
    for _, index in ipairs(others) do
      if standsIn(g, index) then
        return true
      end
    end
  end
  return false
end

-- repair removes the leftovers of a lost record, and says whether there were any. The new message must not inherit the
-- state, the owner or the attempts of the lost message. Copies of the lost message may be out once its verdict was
-- stored, so the first copy of the new message says that it may not be the first.
local function repair(g, id)
  local left = 0
  local function remove(command, key, ...)
    local n = tonumber(redis.pcall(command, key, ...)) or 0
    left = left + n
    return n > 0
  end
  local place
  for s = 1, g.stale and #KEPT or 0 do
    place = remove('ZREM', g[s], id) and s or place
    remove('ZREM', g[s] .. CREATED, id)
  end
  remove('HDEL', g.leases, id)
  local judged = remove('HDEL', g.verdicts, id)
  remove('DEL', g.notes .. id)
  if place == ACKNOWLEDGED or place and judged then
    call('HSET', g.notes .. id, 'copies', 1)
  end
  return left > 0
end

-- store completes a written record.
local function store(g, id, after, key)
  local lost = key_of(g, id)
  if lost then -- what a lost record has left
    g.leaving = {{key = lost, id = id}}
    leave(g)
  end
  if key ~= '' then
    join(g, key, id)
  end
  call('SETRANGE', g.record .. id, 5, created) -- cheaper than to put the record together here
  enter(g, FIRST, id, stamp(now), now + after)
  g.stored = true
  g.room = g.room - 1
end

local function create(g, id, at)
  local digest, after = ARGV[at + 1], tonumber(ARGV[at + 2])
  local key = ARGV[at + 4]
  if g.written[id] then
    g.written[id] = nil
    store(g, id, after, key)
    return STORED + FIRST
  end
  -- An existing message gets its state, even over the quota.
  if call('EXISTS', g.record .. id) == 1 then
    local kind, _, theirs = head(g, id)
    local state = find(g, id)
    return ((kind == POINTER or theirs ~= digest) and EXISTS or OK) + state
  end
  if g.room <= 0 then
    return OVER
  end
  if key ~= '' and call('ZCARD', g.chain .. key) >= longest then
    return KEYHELD
  end
  local repaired = repair(g, id)
  call('SET', g.record .. id, ARGV[at + 3])
  store(g, id, after, key)
  return (repaired and REPAIRED or STORED) + FIRST
end

-- full says whether a chain has no room for all messages of the call.
local function full(g, key)
  return key ~= '' and call('ZCARD', g.chain .. key) + #g.ids > longest
end

-- writeNew writes the records with one command where, as nearly always, no message exists or is in an index. No message
-- inherits the owner, the verdict or the attempts of a lost message.
local function writeNew(g, first)
  local all, notes, crowded = {}, {}, false
  for i, id in ipairs(g.ids) do
    notes[i] = g.notes .. id
    if not g.written[id] then -- the first of a name counts
      g.written[id] = true
      gather(all, g.record .. id, ARGV[first + 5 * i - 2])
      crowded = crowded or full(g, ARGV[first + 5 * i - 1])
    end
  end
  g.stale = crowded or g.room < #g.ids or stale(g)
  if g.stale or call('MSETNX', unpack(all)) == 0 then
    g.written = {}
    return
  end
  redis.pcall('HDEL', g.leases, unpack(g.ids))
  redis.pcall('HDEL', g.verdicts, unpack(g.ids))
  call('DEL', unpack(notes))
end

local function before(g, first)
  index_all(g)
  g.room, g.written = room(g), {}
  call('SADD', KEYS[1] .. PRODUCERS, g.producer)
  writeNew(g, first)
end

local function after(g)
  if not g.stored then
    tidy(g) -- all of them may have been there, and finished
  end
end

local out = groups(3, 5, create, before, after)
out[#out + 1] = now
return out
