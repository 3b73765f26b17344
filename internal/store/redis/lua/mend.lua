#!lua flags=allow-oom
-- Purpose: repairs what a half-finished write, an operator's hand or a clock that jumped has left behind.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 producer; then ids
-- Returns: for each repair {id or "", what was wrong}
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
  local due = tonumber(call('ZSCORE', g[s], id))
  local leased = call('HEXISTS', g.leases, id) == 1
  if due > now + MAXDUE or leased and due > now + MAXLEASE then
    call('ZADD', g[s], now, id)
    wrong('due too far away')
  end
  if leased and s ~= FIRST and s ~= COMMITTED and s ~= ACKNOWLEDGED then
    call('HDEL', g.leases, id)
    wrong('lease on a message nobody works on')
  end
end

local function mend()
  local kind, ms = head(g, id)
  if not kind or ended(kind) then
    finished(kind)
  else
    kept(kind, ms)
  end
end

for i = 2, #ARGV do
  id = ARGV[i]
  local ok, err = pcall(mend)
  if not ok then
    wrong('cannot be mended: ' .. (type(err) == 'table' and err.err or tostring(err)))
  end
end
id = ''
if call('EXISTS', unpack(g)) == 0 then
  if call('SREM', KEYS[1] .. PRODUCERS, g.producer) == 1 then
    wrong('producer without messages')
  end
elseif call('SADD', KEYS[1] .. PRODUCERS, g.producer) == 1 then
  wrong('producer missing in the list')
end
return out
