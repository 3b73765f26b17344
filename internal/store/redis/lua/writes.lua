-- Purpose: work on messages in batches. Writes to the indexes, leases and notes of a producer's messages are gathered
--   and done with one command a key.

local function gather(list, value, id)
  local n = #list
  list[n + 1], list[n + 2] = value, id
end

local function write(command, key, list)
  if #list > 0 then
    call(command, key, unpack(list))
  end
end

-- clear removes everything about messages except their records and their index entries. how is redis.call, or
-- redis.pcall where a key of another type must not keep the others from being cleared.
local function clear(g, ids, how)
  if #ids == 0 then
    return
  end
  how('HDEL', g.leases, unpack(ids))
  how('HDEL', g.verdicts, unpack(ids))
  local notes = {}
  for i, id in ipairs(ids) do
    notes[i] = g.notes .. id
  end
  how('DEL', unpack(notes))
end

-- flush does the gathered writes, new places first, so that a message is always in an index.
local function flush(g)
  for s = 1, #KEPT do
    write('ZADD', g[s] .. CREATED, g.created[s])
    write('ZADD', g[s], g.due[s])
  end
  for s = 1, #KEPT do
    write('ZREM', g[s], g.gone[s])
    write('ZREM', g[s] .. CREATED, g.gone[s])
    g.created[s], g.due[s], g.gone[s] = {}, {}, {}
  end
  write('HSET', g.verdicts, g.judged)
  write('HSET', g.leases, g.held)
  write('HDEL', g.leases, g.freed)
  clear(g, g.dropped, call)
  g.judged, g.held, g.freed, g.dropped = {}, {}, {}, {}
  leave(g)
  await_all(g)
end

-- enter puts a message into the index of a state, and into that of creation times, whose scores are texts.
local function enter(g, s, id, ms, due)
  gather(g.created[s], ms, id)
  gather(g.due[s], stamp(due), id)
end

-- find gives a message's state; a record that lost its index gets it back and is due now.
local function find(g, id)
  local s, due = indexed(g, id)
  if s then
    return s, due
  end
  local kind, ms = head(g, id)
  if not kind or kind == POINTER then
    return 0
  end
  local final = ended(kind)
  if final then
    return final
  end
  s = unplaced(g, id, kind)
  call('SADD', KEYS[1] .. PRODUCERS, g.producer)
  local at = turn(g, s, id, now)
  enter(g, s, id, stamp(ms), at)
  return s, at
end

-- drop takes a message out of its index, after its record was dealt with.
local function drop(g, s, id)
  leaves(g, id)
  g.gone[s][#g.gone[s] + 1] = id
  g.dropped[#g.dropped + 1] = id
end

-- shift moves a message between indexes.
local function shift(g, from, to, id, due)
  if from == to then
    gather(g.due[to], stamp(due), id)
    return
  end
  local ms = score(g, g[from] .. CREATED, id)
  if not ms then
    local _, since = head(g, id)
    ms = stamp(since or now)
  end
  enter(g, to, id, ms, due)
  g.gone[from][#g.gone[from] + 1] = id
end

-- tidy removes the pages of a producer without cells, and takes a producer without messages in this shard off the list
-- of producers.
local function tidy(g)
  if forget_pages(g.base) and call('EXISTS', unpack(g)) == 0 then
    call('SREM', KEYS[1] .. PRODUCERS, g.producer)
  end
end

local function reason(err)
  return type(err) == 'table' and err.err or tostring(err)
end

-- safely runs f for one message, so that a message with unusable keys fails alone.
local function safely(f, g, ...)
  local ok, result = pcall(f, g, ...)
  if ok then
    return result
  end
  return reason(result)
end

-- each runs f for the messages of g, and puts the results into out. A repeated message sees the writes of the first
-- time. When the gathered writes fail, all messages have failed: they share the keys.
local function each(g, f, out)
  local from, seen, failed = #out + 1, {}, nil
  local function save()
    local ok, err = pcall(flush, g)
    failed = failed or not ok and reason(err)
  end
  for i, id in ipairs(g.ids) do
    if seen[id] then
      save()
      g.known, g.alone, g.noted = {}, true, true
    end
    seen[id] = true
    out[#out + 1] = safely(f, g, id, i)
  end
  save()
  g.failed = failed
  for i = from, failed and #out or 0 do
    out[i] = failed
  end
end

local function pass() end

-- groups runs f for the messages in ARGV from at on: for each producer the name, the number of messages, and size
-- arguments for each, first the id. Before and after run for each producer; f and before get the position of the
-- arguments.
local function groups(at, size, f, before, after)
  local out = {}
  while ARGV[at] do
    local ids, first = {}, at + 2
    for i = 1, tonumber(ARGV[at + 1]) do
      ids[i] = ARGV[first + (i - 1) * size]
    end
    local g = open(ARGV[at], ids)
    before(g, first)
    each(g, function(_, id, i) return f(g, id, first + (i - 1) * size) end, out)
    after(g)
    at = first + #ids * size
  end
  return out
end
