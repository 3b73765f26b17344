#!lua flags=allow-oom
-- Purpose: claims paged messages that wait for their verdict and have no owner; or, for trusted producers, stores their
--   Submits as verdicts. All other messages are left to submit.lua and trust.lua.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 to 3 who claims, and generation and its count as it last saw them; 4 the code of the state that a Submit leads
--   to; 5 token; 6 lease in milliseconds; 7 how many bytes of records, unpacked, are claimed at most; then for each
--   producer: name, number of messages, and for each message: id, and, where the caller has the rest of it, when it was
--   created
-- Returns: nothing when the shard has to be looked at first; else for each message 0 when it was left, 1 when it was
--   claimed and is what the caller has, {created, record} when it was claimed; then the time
local to, token, lease, room = tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local well, suspect = seen(ARGV[1], ARGV[2], ARGV[3])
if not well then
  return {}
end
local since = to == FIRST and NEVER or now_text

-- weight is the memory of a claimed record, whose body may be packed.
local function weight(record)
  local size = string.match(record, '^%a+ %d+ %S+ (%d+) ') -- only a packed body's line has a size
  return #record + (size and math.min(tonumber(size), MAXBODY) or 0)
end

-- content gives the reply about a message to claim, and 0 for a message to leave.
local function content(g, id, created, known)
  if known == created then
    return 1
  end
  if room <= 0 then
    return 0
  end
  local record = redis.pcall('GET', g.base .. RECORD .. id)
  if type(record) ~= 'string' or not string.find(record, '^[hpHP]')
    or to ~= FIRST and string.find(record, '"delay_ms"', 1, true) then
    return 0
  end
  room = room - weight(record)
  return {created, record}
end

-- free says whether the message of a cell has no owner and is not suspect, and then gives its creation time and its
-- next cell. Messages that were created together share cells.
local known_cells = {}
local function free(text)
  local answer = known_cells[text]
  if not answer then
    local created = created_of(text)
    answer = {not token_of(text) and (suspect == 0 or tonumber(created) > suspect), created,
      cell(created, now + lease, since, token)}
    known_cells[text] = answer
  end
  return answer[1], answer[2], answer[3]
end

local function claim(g, at, out)
  local known, taken, left = {}, {}, {}
  for i = 1, tonumber(ARGV[at + 1]) do
    g.ids[i], known[i] = ARGV[at + 2 * i], ARGV[at + 2 * i + 1]
  end
  for i, text in ipairs(call('HMGET', g.cells[FIRST], unpack(g.ids))) do
    local id, reply = g.ids[i], 0
    local is_free, created, owned = false, nil, nil
    if text and not left[id] then
      is_free, created, owned = free(text)
    end
    if is_free then
      reply = content(g, id, created, known[i])
    end
    if reply ~= 0 then
      local n = #taken
      taken[n + 1], taken[n + 2] = id, owned
      left[id] = true -- its second mention has an owner
    end
    out[#out + 1] = reply
  end
  return taken
end

local function submit(at, out)
  local g = paged(ARGV[at])
  local taken = claim(g, at, out)
  if #taken == 0 then
    return
  end
  call('HSET', g.cells[to], unpack(taken))
  if to ~= FIRST then
    local moved = {}
    for i = 1, #taken, 2 do
      moved[#moved + 1] = taken[i]
    end
    call('HDEL', g.cells[FIRST], unpack(moved))
  end
end

local out, at = {}, 8
while ARGV[at] do
  local before = #out
  if not pcall(submit, at, out) then -- unusable keys spoil only their producer
    for i = 1, tonumber(ARGV[at + 1]) do
      out[before + i] = 0
    end
  end
  at = at + 2 + 2 * ARGV[at + 1]
end
out[#out + 1] = now
return out
