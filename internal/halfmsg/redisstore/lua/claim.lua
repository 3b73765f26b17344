#!lua flags=allow-oom
-- Purpose: claims due messages of a state, those due longest first.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 to 3 who claims, and generation and its count as it last saw them; 4 code of the state; 5 token; 6 lease in
--   milliseconds; 7 how many bytes of records are claimed at most, though one message always is; then pairs of a producer
--   and how many of its messages are claimed at most
-- Returns: for each claim {producer, id, record, confirms, publishes, copies, sendable_at, deletes, due}; for what had no
--   record, and left the index, {producer, id}; for what could not be worked on, and was put off for an hour, {producer,
--   id, why}
local s, token, lease, room = tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local HOUR = 3600 * 1000

-- due gives ids and due times in turn. Those due later than anything legal is were put there by a clock that jumped.
local function due(g, limit)
  local found = call('ZRANGEBYSCORE', g[s], '-inf', now, 'WITHSCORES', 'LIMIT', 0, limit)
  if #found < 2 * limit then
    local far = call('ZRANGEBYSCORE', g[s], '(' .. string.format('%.0f', now + MAXDUE), '+inf', 'LIMIT', 0, limit - #found / 2)
    for _, id in ipairs(far) do
      found[#found + 1] = id
      found[#found + 1] = now
    end
  end
  return found
end

local function claim(g, id, due)
  return take(g, id, s, due, token, lease, call('HGET', g.leases, id))
end

look(ARGV[1], ARGV[2], ARGV[3])
local out = {}
for i = 8, #ARGV, 2 do
  local g = open(ARGV[i])
  local found = due(g, tonumber(ARGV[i + 1]))
  for n = 1, #found, 2 do
    local id = found[n]
    if room <= 0 then
      return out
    end
    local got = safely(claim, g, id, tonumber(found[n + 1]))
    if type(got) == 'table' then
      room = room - #got[3]
    elseif got then
      call('ZADD', g[s], now + HOUR, id)
      got = {g.producer, id, got}
    else
      tidy(g)
      got = {g.producer, id}
    end
    out[#out + 1] = got
  end
end
return out
