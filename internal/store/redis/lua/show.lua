#!lua flags=no-writes
-- Purpose: tells all there is to know about messages.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 "1" for whole records, else without their bodies and timelines; then for each producer: name, number of ids, ids
-- Returns: for each message state code (0 is none); or {state code, due, token or "", record, notes as name, value, ...}
local whole = ARGV[1] == '1'

local function show(g, id)
  local key = g.record .. id
  local s, due = indexed(g, id)
  if not s then
    local kind = head(g, id)
    if not kind then
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
  local notes = call('HGETALL', g.notes .. id)
  for i = 1, #notes, 2 do
    if whole or notes[i] ~= 'events' then
      out[#out + 1] = notes[i]
      out[#out + 1] = notes[i + 1]
    end
  end
  return out
end

return groups(2, 1, show, pass, pass)
