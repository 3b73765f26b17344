#!lua flags=allow-oom
-- Purpose: indexes what is left of the pages that are due; then tells which messages of a state are due, and since when,
--   without claiming them.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 code of the state; 2 how many due times a producer gets at most; 3 how much work to do for pages: an id that is
--   looked at counts 1, a message that is indexed 10; 4 the number of the producer behind which to begin with pages; 5 how
--   many brokers are claimed for; then their names, empty for the default one; then pairs of a producer and its own most;
--   without any pair all producers of the shard are looked at
-- Returns: the number of the producer behind which to go on with pages, 0 when no more are known to be due; then for each
--   producer with due messages {name, due times in milliseconds, oldest first}
local room = tonumber(ARGV[3])

-- finish indexes what is left of a page, as far as there is room: in parts, since room is counted after each.
local function finish(g, page)
  while room > 0 do
    local ids = redis.pcall('LRANGE', g.page .. page, 0, 99)
    if #ids == 0 then -- or a key of another type: the sweeper finds its messages
      call('ZREM', g.pages, page)
      return
    end
    local indexed = index_cells(g, ids)
    call('LTRIM', g.page .. page, #ids, -1)
    room = room - #ids - 9 * indexed
  end
end

-- finish_pages finishes pages of a producer, and says whether more may be due.
local function finish_pages(producer)
  local found = call('ZRANGEBYSCORE', KEYS[1] .. producer .. ':' .. PAGES, '-inf', now, 'LIMIT', 0, 10)
  if #found == 0 then
    return false
  end
  local g = open(producer)
  for _, page in ipairs(found) do
    finish(g, page)
  end
  tidy(g)
  return room <= 0 or #found == 10
end

-- The next call goes on behind the producer whose pages have used up the room, or the others would wait for all of them.
local producers = call('SMEMBERS', KEYS[1] .. PRODUCERS)
local last, go_on = tonumber(ARGV[4]), 0
for _ = 1, #producers do
  if room <= 0 then
    break
  end
  last = last % #producers + 1
  local ok, more = pcall(finish_pages, producers[last])
  if ok and more then
    go_on = last
  end
end

local s, most, brokers = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[5])

-- unpark makes messages for a broker due again, those parked longest first. A message that has an owner, or
-- another due time than it was parked with, has been worked on since.
local function unpark(broker)
  local key, gone = KEYS[1] .. PARKED .. broker, {}
  local found = call('ZRANGE', key, 0, most - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    local producer, id = string.match(found[i], '^([^/]+)/(.+)$')
    local base = KEYS[1] .. (producer or '') .. ':'
    local index = base .. KEPT[COMMITTED]
    local owned = producer and redis.pcall('HEXISTS', base .. LEASES, id) ~= 0
    local due = producer and not owned and redis.pcall('ZSCORE', index, id)
    if type(due) == 'string' and tonumber(due) == tonumber(found[i + 1]) then
      call('ZADD', index, stamp(tonumber(due) - PARKTIME), id)
    end
    gone[#gone + 1] = found[i]
  end
  if #gone > 0 then
    call('ZREM', key, unpack(gone))
  end
end
for i = 6, 5 + brokers do
  pcall(unpark, ARGV[i])
end

-- far are due times later than any legal one: a clock that jumped has set them, and they count as due.
local function due(g, limit)
  local found = {g.producer}
  local list = call('ZRANGEBYSCORE', g[s], '-inf', now, 'WITHSCORES', 'LIMIT', 0, limit)
  for i = 2, #list, 2 do
    found[#found + 1] = tonumber(list[i])
  end
  if #found <= limit then
    local far = call('ZRANGEBYSCORE', g[s], '(' .. string.format('%.0f', now + MAXDUE), '+inf', 'LIMIT', 0, limit + 1 - #found)
    for _ = 1, #far do
      found[#found + 1] = now
    end
  end
  return found
end

local out = {go_on}
local function look(producer, limit)
  local ok, found = pcall(due, open(producer), limit)
  if ok and #found > 1 then
    out[#out + 1] = found
  end
end

if ARGV[6 + brokers] then
  for i = 6 + brokers, #ARGV, 2 do
    look(ARGV[i], math.min(most, tonumber(ARGV[i + 1])))
  end
else
  for _, producer in ipairs(producers) do
    look(producer, most)
  end
end
return out
