#!lua flags=no-writes
-- Purpose: tells all there is to know about messages.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 "1" for whole records, else without their bodies and timelines; then for each producer: name, number of ids, ids
-- Returns: for each message state code (0 is none); or {state code, due, token or "", record, notes as name, value, ...}
local whole = ARGV[1] == '1'

-- paged tells of a message with a cell.
local function paged(g, s, id, text)
  local record = whole and (call('GET', g.record .. id) or '') or line(g.record .. id)
  local out = {s, due_of(text), token_of(text) or ''}
  out[4] = string.sub(record, 1, 5) .. created_of(text) .. string.sub(record, 19)
  if s == COMMITTED then
    out[5], out[6] = 'sendable_at', since_of(text)
  end
  return out
end

-- parked says whether an indexed message waits for its broker. Another due time than that of the entry is a later one.
local function parked(g, id, due, record)
  local since = call('ZSCORE', KEYS[1] .. PARKED .. broker_of(record), g.producer .. '/' .. id)
  return since and tonumber(since) == due
end

local function get(g, id)
  for _, s in ipairs({COMMITTED, FIRST}) do
    local text = ask(g, 'HMGET', g[s] .. CELLS, id)
    if text then
      return paged(g, s, id, text)
    end
  end
  local key = g.record .. id
  local s, due = indexed(g, id)
  if not s then
    local kind = head(g, id)
    if not kind or kind == POINTER then
      return 0
    end
    s, due = ended(kind), 0
    if not s then
      -- It lost its index, and gets it back when it is next touched.
      s, due = unplaced(g, id, kind), now
    end
  end
  local record = whole and (call('GET', key) or '') or line(key)
  local out = {s, due, owned(g, id) or '', record}
  local verdict = s ~= ACKNOWLEDGED and judged(g, id)
  if verdict then
    out[5], out[6] = 'sendable_at', verdict
  end
  if s == COMMITTED and due > now and parked(g, id, due, record) then
    out[#out + 1] = 'parked'
    out[#out + 1] = '1'
  end
  if s == COMMITTED and due >= BEHIND then
    out[#out + 1] = 'held_by'
    out[#out + 1] = first_of(g, key_of(g, id) or '') or ''
  end
  local notes = call('HGETALL', g.notes .. id)
  for i = 1, #notes, 2 do
    if whole or notes[i] ~= 'events' then
      out[#out + 1] = notes[i]
      out[#out + 1] = notes[i + 1]
    end
  end
  return out
end

return groups(2, 1, get, pass, pass)
