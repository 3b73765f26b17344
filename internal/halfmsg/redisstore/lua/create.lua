#!lua
-- Purpose: stores new messages, or tells the state of those that are there.
-- KEYS: 1 the shard's prefix
-- ARGV: for each producer: name, number of messages, and for each message: id, digest, milliseconds until it is due, the
--   rest of the record
-- Returns: for each message verdict + state
local function create(g, id, digest, after, rest)
  local record = 'half ' .. string.format('%.0f', now) .. ' ' .. digest .. ' ' .. rest
  if call('SET', g.record .. id, record, 'NX') then
    enter(g, FIRST, id, now, now + after)
    g.stored = true
    return OK + FIRST
  end
  local _, _, theirs = head(g, id)
  local state = find(g, id)
  if theirs ~= digest then
    return EXISTS + state
  end
  return OK + state
end

local out = {}
local at = 1
while ARGV[at] do
  local g = open(ARGV[at], ARGV[at + 1])
  call('SADD', KEYS[1] .. PRODUCERS, g.producer)
  local last = at + 1 + 4 * ARGV[at + 1]
  for i = at + 2, last, 4 do
    out[#out + 1] = safely(create, g, ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3])
  end
  if not g.stored then
    tidy(g) -- all of them may have been there, and finished
  end
  at = last + 1
end
return out
