#!lua
-- Purpose: stores new messages in a page. A producer's messages of which one is not new are left to create.lua.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 how many messages a producer may keep in this shard, 0 for no limit; then for each producer: name, number of
--   messages, and for each message: id, digest, milliseconds until it is due, the record with any 13 digits for its time
-- Returns: the time; then for each producer 1 when its messages were stored, 0 when they were left
local most = tonumber(ARGV[1])
local number = math.floor(now / PAGESPAN)

-- fresh gives the time and the cell of messages that are due after so many milliseconds, which messages of a batch
-- share.
local dues, texts = {}, {}
local function fresh(after)
  if not dues[after] then
    dues[after] = now + after
    texts[after] = cell(now_text, dues[after], NEVER, UNOWNED)
  end
  return dues[after], texts[after]
end

-- count adds up the messages of a producer.
local function count(g, indexes)
  local total = call('HLEN', g.cells[FIRST]) + call('HLEN', g.cells[COMMITTED])
  for _, index in ipairs(indexes) do
    total = total + call('ZCARD', index)
  end
  return total
end

local function names_one(values)
  for _, value in ipairs(values) do
    if value then
      return true
    end
  end
  return false
end

-- refused says whether a lost record has left a place in the shard, or there is no room for all. What else a lost
-- record has left is removed when a message is indexed.
local function refused(g)
  if names_one(call('HMGET', g.cells[COMMITTED], unpack(g.ids))) then
    return true
  end
  local indexes = {}
  for s = 1, #KEPT do
    indexes[s] = g.base .. KEPT[s]
  end
  if call('EXISTS', unpack(indexes)) == 0 then
    indexes = {}
  end
  for _, index in ipairs(indexes) do
    if names_one(call('ZMSCORE', index, unpack(g.ids))) then
      return true
    end
  end
  return most > 0 and count(g, indexes) + #g.ids > most
end

local function create(producer, at)
  local g = paged(producer)
  local records, cells, named, first = {}, {}, {}, now + PAGELIFE
  for i = 1, tonumber(ARGV[at + 1]) do
    local arg = at + 4 * i - 2
    local id = ARGV[arg]
    local due, text = fresh(ARGV[arg + 2])
    if named[id] then
      return 0
    end
    named[id], g.ids[i] = true, id
    records[2 * i - 1], records[2 * i] = g.base .. RECORD .. id, ARGV[arg + 3]
    cells[2 * i - 1], cells[2 * i] = id, text
    if due < first then
      first = due
    end
  end
  if refused(g) or call('MSETNX', unpack(records)) == 0 then
    return 0
  end
  if call('RPUSH', g.base .. PAGE .. number, unpack(g.ids)) == #g.ids then
    call('SADD', KEYS[1] .. PRODUCERS, producer) -- where the producer has pages already it is on the list
  end
  call('ZADD', g.base .. PAGES, 'LT', digits(first), number)
  if call('EXISTS', g.cells[FIRST]) == 0 then
    cells[2] = cell(now_text, due_of(cells[2]), NEVER, LONG_UNOWNED)
  end
  call('HSET', g.cells[FIRST], unpack(cells))
  return 1
end

local out, at = {now}, 2
while ARGV[at] do
  local ok, stored = pcall(create, ARGV[at], at) -- unusable keys spoil only their producer
  out[#out + 1] = ok and stored or 0
  at = at + 2 + 4 * ARGV[at + 1]
end
return out
