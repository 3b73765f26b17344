#!lua flags=no-writes
-- Purpose: names the messages of a state, oldest first, from a time on, but for those that surely do not match.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 code of the state; 2 from when on, in milliseconds; 3 about how many to look at, beyond those of the very first
--   millisecond, of which all are; 4 a producer; empty is all; 5 how old they are at least, in milliseconds; 6 how the JSON of
--   records begins that go to the exchange that is looked for; empty is any; 7 what last errors hold, in lower case; empty is
--   any
-- Returns: how many were looked at; then for each producer {name, id and created of the last that the index told of, both
--   empty when there are no more behind it, id, created, id, created, ...}
local s, from = tonumber(ARGV[1]), ARGV[2]
local to = ARGV[5] == '0' and '+inf' or now - tonumber(ARGV[5])
local exchange, fault = ARGV[6], ARGV[7]
local producers = ARGV[4] ~= '' and {ARGV[4]} or call('SMEMBERS', KEYS[1] .. PRODUCERS)
-- Fewer than four of each, and one with two close together would end the list for all.
local each = math.max(4, math.ceil(tonumber(ARGV[3]) / #producers))

-- may says whether a message can match. Letters beyond ASCII have their lower case elsewhere.
local function may(g, id)
  if fault ~= '' then
    local text = call('HGET', g.notes .. id, 'error')
    if not text or not (string.find(string.lower(text), fault, 1, true) or string.find(text, '[\128-\255]')) then
      return false
    end
  end
  return exchange == '' or string.find(call('GETRANGE', g.record .. id, 0, 99 + #exchange), exchange, 1, true)
end

-- Nothing behind the nearest end can be listed yet, so nobody looks at it.
local told, nearest = {}, math.huge
for _, producer in ipairs(producers) do
  local g = open(producer)
  local key = g[s] .. CREATED
  local first = call('ZRANGEBYSCORE', key, from, from)
  local rest = call('ZRANGEBYSCORE', key, '(' .. from, to, 'WITHSCORES', 'LIMIT', 0, each)
  local last = {'', ''}
  if #rest == 2 * each then
    last = {rest[#rest - 1], rest[#rest]}
    nearest = math.min(nearest, tonumber(last[2]))
  end
  if #first + #rest > 0 then
    told[#told + 1] = {g, first, rest, last}
  end
end

local out, looked = {0}, 0
for _, one in ipairs(told) do
  local g, first, rest, last = unpack(one)
  local found = {g.producer, last[1], last[2]}
  local function look(id, ms)
    looked = looked + 1
    if may(g, id) then
      found[#found + 1] = id
      found[#found + 1] = ms
    end
  end
  for _, id in ipairs(first) do
    look(id, from)
  end
  for i = 1, #rest, 2 do
    if tonumber(rest[i + 1]) > nearest then
      break
    end
    look(rest[i], rest[i + 1])
  end
  out[#out + 1] = found
end
out[1] = looked
return out
