#!lua flags=allow-oom
-- Purpose: repairs what a half-finished write, an operator's hand or a clock that jumped has left behind.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 producer; 2 how many pages were found; then their numbers; then ids
-- Returns: for each repair {id or "", what was wrong}; for each pointer {id, its text, "pointer"}; for each message of a
--   chain {id, its ordering key, "keyed"}
local g = open(ARGV[1])
local out = {}
local id

local function wrong(what)
  out[#out + 1] = {id, what}
end

-- clear removes a message from the indexes and reports each wrong place.
local function clear(key, what)
  if call('ZREM', key, id) == 1 then
    wrong(what)
  end
end

-- home is the one state of a living record: by precedence the state of a due time, else of a creation time, else the
-- state that the first word and the notes prove. A stripped record can only be acknowledged.
local function home(kind)
  local s = indexed(g, id)
  if kind == KEPT[ACKNOWLEDGED] then
    s = call('ZSCORE', g[ACKNOWLEDGED], id) and ACKNOWLEDGED
  end
  if s then
    return s
  end
  wrong('record without index: due now')
  for c = 1, #KEPT do
    if kind ~= KEPT[ACKNOWLEDGED] and call('ZSCORE', g[c] .. CREATED, id) then
      s = s or c
    end
  end
  s = s or unplaced(g, id, kind)
  call('SADD', KEYS[1] .. PRODUCERS, g.producer)
  call('ZADD', g[s], now, id)
  return s
end

-- finished repairs a receipt, and a message without a record.
local function finished(kind)
  if kind and call('PTTL', g.record .. id) < 0 then
    call('PEXPIRE', g.record .. id, RETENTION)
    wrong('trace without an end')
  end
  for s = 1, #KEPT do
    clear(g[s], 'index entry without record')
    clear(g[s] .. CREATED, 'creation time without record')
  end
  if call('HDEL', g.leases, id) == 1 then
    wrong('lease without record')
  end
  if call('HDEL', g.verdicts, id) == 1 then
    wrong('verdict without record')
  end
  if call('DEL', g.notes .. id) == 1 then
    wrong('notes without record')
  end
  if key_of(g, id) then
    leaves(g, id)
    leave(g)
    wrong('ordering key without record')
  end
end

-- ordering_key gives the ordering key of a living message that belongs to a chain.
local function ordering_key(s)
  local text = s ~= ACKNOWLEDGED and line(g.record .. id) or ''
  return not string.find(text, '"replayed":true', 1, true) and string.match(text, '"ordering_key":"([^"]+)"') or nil
end

-- chained repairs the place of a living message in its chain. The place of a message that has lost its own is that of its
-- time.
local function chained(s, ms)
  local key, known = ordering_key(s), key_of(g, id)
  if known and known ~= key then
    leaves(g, id)
    leave(g)
    wrong('ordering key of a message without a chain')
  end
  if not key then
    return
  end
  out[#out + 1] = {id, key, 'keyed'}
  if call('HSETNX', g.keys, id, key) + call('ZADD', g.chain .. key, 'NX', ms, id) > 0 then
    g.known, g.chains = {}, true
    wrong('message without its place in its chain')
  end
end

-- in_turn repairs the due time of a committed message by its place in its chain, and says whether the message waits for
-- its turn. An owner keeps its lease: then it is the owner that has been there first.
local function in_turn(s, leased)
  local due = tonumber(call('ZSCORE', g[s], id))
  local waits = s == COMMITTED and behind(g, id)
  if due >= BEHIND and not waits then
    call('ZADD', g[s], now, id)
    wrong('first of its chain and not due')
  elseif due < BEHIND and waits and not leased then
    call('ZADD', g[s], stamp(BEHIND), id)
    wrong('due before its turn')
  end
  return waits and not leased
end

-- ahead says whether a time comes from a clock that was ahead, or that has been set back since.
local function ahead(ms)
  return ms > now + CLOCKSLACK
end

-- present replaces the times of a message that are in the future, and says when the wait of its state began, and whether
-- a time was in the future. Only the time of a whole record has 13 digits behind a word of four letters.
local function present(s, kind, created)
  local judged, future = tonumber(s == COMMITTED and call('HGET', g.verdicts, id)) or created, false
  if ahead(created) and #kind == 4 then
    future = true
    call('SETRANGE', g.record .. id, 5, digits(now))
    call('ZADD', g[s] .. CREATED, now, id)
  end
  if s == COMMITTED and ahead(judged) then
    future = true
    call('HSET', g.verdicts, id, now)
  end
  return math.min(judged, now), future
end

-- timely repairs the due time of a message, which no clock can have meant: later than the wait that the message itself
-- asks for, and than any other wait.
local function timely(s, kind, created, leased)
  local due = tonumber(call('ZSCORE', g[s], id))
  local first, last = now, now + MAXDUE
  if s == FIRST or s == COMMITTED then
    local begun, future = present(s, kind, created)
    local wait = string.match(line(g.record .. id), s == FIRST and '"confirm_after_ms":(%d+)' or '"delay_ms":(%d+)')
    first = math.max(now, begun + (tonumber(wait) or 0))
    last = future and first or math.max(first, now + LONGEST)
  end
  if leased or s == ACKNOWLEDGED then
    first, last = now, now + LONGEST
  end
  if due > last + CLOCKSLACK then
    call('ZADD', g[s], stamp(first), id)
    wrong('due too far away')
  end
end

-- kept repairs a living record.
local function kept(kind, ms)
  for _, key in ipairs({g.record .. id, g.notes .. id}) do
    if call('PERSIST', key) == 1 then
      wrong('expiry on an unfinished message')
    end
  end
  local s = home(kind)
  if not call('ZSCORE', g[s] .. CREATED, id) then
    call('ZADD', g[s] .. CREATED, ms, id)
    wrong('creation time missing')
  end
  for other = 1, #KEPT do
    if other ~= s then
      clear(g[other], 'in two indexes')
      clear(g[other] .. CREATED, 'creation time in two indexes')
    end
  end
  local leased = call('HEXISTS', g.leases, id) == 1
  chained(s, ms)
  if not in_turn(s, leased) then
    timely(s, kind, ms, leased)
  end
  if leased and s ~= FIRST and s ~= COMMITTED and s ~= ACKNOWLEDGED then
    call('HDEL', g.leases, id)
    wrong('lease on a message without a loop')
  end
end

-- paged checks a message with a cell, and says whether nothing else is to be checked. A message that its page has
-- forgotten is indexed.
local function paged(kind)
  local sendable, pending = call('HGET', g[COMMITTED] .. CELLS, id), call('HGET', g[FIRST] .. CELLS, id)
  local text = sendable or pending
  if not text then
    return false
  end
  if sendable and pending then
    call('HDEL', g[FIRST] .. CELLS, id)
    wrong('in two cells')
  end
  if not kind or ended(kind) then
    call('HDEL', g[FIRST] .. CELLS, id)
    call('HDEL', g[COMMITTED] .. CELLS, id)
    wrong('cell without record')
    return false
  end
  local created = tonumber(created_of(text))
  local page = created and math.floor(created / PAGESPAN)
  if not page or not call('ZSCORE', g.pages, stamp(page)) or indexed(g, id) or ahead(created)
    or ahead(tonumber(since_of(text)) or 0) then
    index_cells(g, {id})
    wrong('cell of a message that should be in an index')
    return false
  end
  if call('PERSIST', g.record .. id) == 1 then
    wrong('expiry on an unfinished message')
  end
  return true
end

local function repair()
  local kind, ms = head(g, id)
  if kind == POINTER then
    out[#out + 1] = {id, call('GET', g.record .. id), 'pointer'}
    kind = nil
  end
  if paged(kind) then
    return
  end
  if not kind or ended(kind) then
    finished(kind)
  else
    kept(kind, ms)
  end
end

local pages = tonumber(ARGV[2])
id = ''
for i = 3, 2 + pages do
  if call('EXISTS', g.page .. ARGV[i]) == 1 and not redis.pcall('ZSCORE', g.pages, ARGV[i]) then
    call('ZADD', g.pages, now, ARGV[i])
    wrong('page without due time')
  end
end
for i = 3 + pages, #ARGV do
  id = ARGV[i]
  local ok, err = pcall(repair)
  if not ok then
    wrong('cannot be mended: ' .. (type(err) == 'table' and err.err or tostring(err)))
  end
end
id = ''
for _, page in ipairs(redis.pcall('ZRANGEBYSCORE', g.pages, '(' .. stamp(now + 2 * PAGELIFE), '+inf', 'LIMIT', 0, MAXCALL)) do
  call('ZADD', g.pages, now, page)
  wrong('page due too far away')
end
if forget_pages(g.base) and call('EXISTS', unpack(g)) == 0 then
  if call('SREM', KEYS[1] .. PRODUCERS, g.producer) == 1 then
    wrong('producer without messages')
  end
elseif call('SADD', KEYS[1] .. PRODUCERS, g.producer) == 1 then
  wrong('producer missing in the list')
end
return out
