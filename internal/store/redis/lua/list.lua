#!lua flags=no-writes
-- Purpose: names the messages of a state, oldest first, from a time on, except those that surely do not match.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 code of the state; 2 from when on, in milliseconds; 3 about how many to look at, beyond all of the very first
--   millisecond; 4 a producer, empty is all; 5 how old they are at least, in milliseconds; 6 the part of a record's JSON
--   that names the broker and the exchange, empty is any; 7 and 8 what last errors hold, in lower case, empty is any; 9 how
--   ids begin; 10 and 11 what the first line of a record holds, empty is any
-- Returns: how many were looked at; then for each producer {name, id and created of the last that the index told of, both
--   empty when there are no more behind it, id, created, id, created, ...}
local s, from = tonumber(ARGV[1]), ARGV[2]
local to = ARGV[5] == '0' and '+inf' or now - tonumber(ARGV[5])
local target, fault, word, prefix, routing, header = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11]
local producers = ARGV[4] ~= '' and {ARGV[4]} or call('SMEMBERS', KEYS[1] .. PRODUCERS)
-- Fewer than four of each, and one with two close together would end the list for all.
local each = math.max(4, math.ceil(tonumber(ARGV[3]) / #producers))

-- may says whether a message can match. Letters beyond ASCII have their lower case elsewhere.
local function may(g, id)
  if string.sub(id, 1, #prefix) ~= prefix then
    return false
  end
  if fault ~= '' or word ~= '' then
    local text = call('HGET', g.notes .. id, 'error')
    local lower = text and string.lower(text)
    if not lower or not (string.find(lower, fault, 1, true) and string.find(lower, word, 1, true)
      or string.find(text, '[\128-\255]')) then
      return false
    end
  end
  if routing ~= '' or header ~= '' then
    local text = line(g.record .. id)
    if not (string.find(text, routing, 1, true) and string.find(text, header, 1, true)) then
      return false
    end
  end
  return target == '' or string.find(call('GETRANGE', g.record .. id, 0, 199 + #target), target, 1, true)
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
local SCAN = 2000 -- about how many ids in pages to read

-- of_page gives the messages with cells in a page, {id, ms} each, that are in the state and were created from on and
-- up to to; and how many ids the page has.
local function of_page(g, page, seen)
  local found, start = {}, 0
  repeat
    local ids = call('LRANGE', g.page .. stamp(page), start, start + 199)
    for i, text in ipairs(#ids > 0 and call('HMGET', g[s] .. CELLS, unpack(ids)) or {}) do
      local ms = text and not seen[ids[i]] and tonumber(created_of(text))
      ms = ms and math.floor(ms / PAGESPAN) == page and ms -- an id that was used again is in the page of its first use, too
      if ms and ms >= tonumber(from) and (to == '+inf' or ms <= to) then
        seen[ids[i]], found[#found + 1] = true, {ids[i], ms}
      end
    end
    start = start + #ids
  until #ids < 200
  table.sort(found, function(a, b) return a[2] < b[2] or a[2] == b[2] and a[1] < b[1] end)
  return found, start
end

-- pages_of lists the pages of a producer that may have messages created from on: pages follow one another in time.
local function pages_of(g)
  local pages = {}
  for _, page in ipairs(call('ZRANGE', g.pages, 0, -1)) do
    if (page + 1) * PAGESPAN > tonumber(from) then
      pages[#pages + 1] = tonumber(page)
    end
  end
  table.sort(pages)
  return pages
end

-- paged lists the messages with cells of a producer, like the index.
local function paged(producer)
  local g = open(producer)
  if s ~= FIRST and s ~= COMMITTED or call('EXISTS', g[s] .. CELLS) == 0 then
    return
  end
  local first, rest, last, seen, scanned = {}, {}, {'', ''}, {}, 0
  local pages = pages_of(g)
  for i, page in ipairs(pages) do
    local found, ids = of_page(g, page, seen)
    scanned = scanned + ids
    for n, one in ipairs(found) do
      if one[2] == tonumber(from) then
        first[#first + 1] = one[1]
      elseif #rest < 2 * each or one[2] == tonumber(rest[#rest]) then
        rest[#rest + 1], rest[#rest + 2] = one[1], stamp(one[2])
      else
        last = {rest[#rest - 1], rest[#rest]}
        break
      end
    end
    local ending = (page + 1) * PAGESPAN - 1
    if last[1] == '' and i < #pages and ending > tonumber(from) and (#rest >= 2 * each or scanned >= SCAN) then
      last = {#rest > 0 and tonumber(rest[#rest]) == ending and rest[#rest - 1] or '0', stamp(ending)}
    end
    if last[1] ~= '' then
      nearest = math.min(nearest, tonumber(last[2]))
      break
    end
  end
  told[#told + 1] = {g, first, rest, last}
end

for _, producer in ipairs(producers) do
  paged(producer)
end
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
