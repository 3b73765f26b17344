#!lua flags=allow-oom
-- Purpose: indexes what is left of the pages that are due; then tells which messages of a state are due, and since when,
--   without claiming them.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 code of the state; 2 how many due times a producer gets at most, 0 for pages only; 3 how much work to do for pages: an id that is
--   looked at counts 1, a message that is indexed 10; 4 the number of the producer behind which to begin with pages; 5 how
--   many brokers are claimed for; then their names, empty for the default one; then pairs of a producer and its own most;
--   without any pair all producers of the shard are looked at
-- Returns: the number of the producer behind which to go on with pages, 0 when no more are known to be due; 1 when more
--   messages may be parked for the brokers, else 0; then for each producer with due messages {name, due times in
--   milliseconds, oldest first}; and for each part of the work that failed {what, why}
local room = tonumber(ARGV[3])
local out = {0, 0}

-- guarded does a part of the work, which must not stop the others. A key of another type is reported by the sweeper.
local function guarded(what, f, ...)
  local ok, result = pcall(f, ...)
  if ok then
    return result
  end
  local why = reason(result)
  if not string.find(why, 'WRONGTYPE', 1, true) then
    out[#out + 1] = {what, why}
  end
end

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
local last = tonumber(ARGV[4])
for _ = 1, #producers do
  if room <= 0 then
    break
  end
  last = last % #producers + 1
  if guarded(producers[last], finish_pages, producers[last]) then
    out[1] = last
  end
end

local s, most, brokers = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[5])
if most <= 0 then
  return out
end

-- unpark makes at most so many messages for a broker due again, those parked longest first, and says how many it has
-- looked at. A message that has an owner, or another due time than it was parked with, has been worked on since.
local function unpark(broker, limit)
  local key, gone = KEYS[1] .. PARKED .. broker, {}
  local found = call('ZRANGE', key, 0, limit - 1, 'WITHSCORES')
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
  write('ZREM', key, gone)
  return #gone
end

-- Each broker gets an equal part, and what those before it have left.
local left = math.min(most, MAXCALL)
for i = 6, 5 + brokers do
  local limit = math.ceil(left / (6 + brokers - i))
  local looked = limit > 0 and guarded('parked for ' .. ARGV[i], unpark, ARGV[i], limit) or 0
  left = left - looked
  if looked >= limit then
    out[2] = 1
  end
end

-- far are due times later than any legal one: a clock that jumped has set them, and they count as due.
local function due(g, limit)
  local found = {g.producer}
  local list = call('ZRANGEBYSCORE', g[s], '-inf', now, 'WITHSCORES', 'LIMIT', 0, limit)
  for i = 2, #list, 2 do
    found[#found + 1] = tonumber(list[i])
  end
  if #found <= limit then
    local far = call('ZRANGEBYSCORE', g[s], '(' .. stamp(now + MAXDUE), '(' .. stamp(BEHIND), 'LIMIT', 0, limit + 1 - #found)
    for _ = 1, #far do
      found[#found + 1] = now
    end
  end
  return found
end

local function look(producer, limit)
  local found = guarded(producer, due, open(producer), limit)
  if found and #found > 1 then
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
