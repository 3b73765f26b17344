#!lua
-- Purpose: stores new messages, or tells the state of those that are there.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 how many messages a producer may keep in this shard, 0 for no limit; then for each producer: name, number of
--   messages, and for each message: id, digest, milliseconds until it is due, the record with any 13 digits for its time
-- Returns: for each message verdict + state; then the time
local most = tonumber(ARGV[1])
local created = string.format('%013.0f', now)

-- room is how many more messages a producer may have here. An index that cannot be counted is no reason to refuse any: it
-- fails those that it concerns.
local function room(g)
  local left = most > 0 and most or math.huge
  for s = 1, most > 0 and #KEPT or 0 do
    local count = redis.pcall('ZCARD', g[s])
    left = left - (type(count) == 'number' and count or 0)
  end
  return left
end

local function create(g, id, at)
  local digest, after = ARGV[at + 1], tonumber(ARGV[at + 2])
  -- One that is there already is told its state, however full it is.
  if g.room <= 0 and call('EXISTS', g.record .. id) == 0 then
    return OVER
  end
  if g.written[id] or call('SET', g.record .. id, ARGV[at + 3], 'NX') then
    g.written[id] = nil
    call('SETRANGE', g.record .. id, 5, created) -- cheaper than to put the record together here
    enter(g, FIRST, id, stamp(now), now + after)
    g.stored = true
    g.room = g.room - 1
    return STORED + FIRST
  end
  local _, _, theirs = head(g, id)
  local state = find(g, id)
  if theirs ~= digest then
    return EXISTS + state
  end
  return OK + state
end

-- writeNew writes the records with one command where, as nearly always, none of the messages is there.
local function writeNew(g, first)
  local keys, all = {}, {}
  for i, id in ipairs(g.ids) do
    keys[i] = g.record .. id
    if not g.written[id] then -- the first of a name counts
      g.written[id] = true
      gather(all, keys[i], ARGV[first + 4 * i - 1])
    end
  end
  if g.room >= #keys and call('EXISTS', unpack(keys)) == 0 then
    call('MSET', unpack(all))
  else
    g.written = {}
  end
end

local function before(g, first)
  g.room, g.written = room(g), {}
  call('SADD', KEYS[1] .. PRODUCERS, g.producer)
  writeNew(g, first)
end

local function after(g)
  if not g.stored then
    tidy(g) -- all of them may have been there, and finished
  end
end

local out = groups(2, 4, create, before, after)
out[#out + 1] = now
return out
