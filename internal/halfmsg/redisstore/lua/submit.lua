#!lua flags=allow-oom
-- Purpose: makes messages due now and claims those that nobody holds.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 to 3 who claims, and generation and its count as it last saw them; 4 where a Submit leads from each kept state,
--   one character each, "-" for nowhere; 5 token; 6 lease in milliseconds; 7 how many bytes of records are claimed at most;
--   then for each producer: name, number of ids, ids
-- Returns: for each message verdict + state; or, when it was claimed, {producer, id, record, confirms, publishes, copies,
--   sendable_at, deletes, due}
local leads, token, lease, room = ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])

local function submit(g, id)
  local s, due = find(g, id)
  if s == 0 then
    return MISSING
  end
  local to = tonumber(string.sub(leads, s, s))
  if not to then
    return OK + s
  end
  local owner = call('HGET', g.leases, id)
  if s ~= to then
    call('HDEL', g.notes .. id, 'confirms', 'publishes')
    call('HSET', g.notes .. id, 'updated_at', now, 'events', told(g, id, SUBMITTED, instance(token), ''))
    shift(g, s, to, id, now)
  elseif live(due) and owner then
    call('HSET', g.notes .. id, 'hurry', 1)
    return OK + to
  end
  if room <= 0 then
    call('ZADD', g[to], now, id)
    return OK + to
  end
  local claim = take(g, id, to, due or now, token, lease, owner)
  if not claim then
    return MISSING
  end
  room = room - #claim[3]
  return claim
end

look(ARGV[1], ARGV[2], ARGV[3])
local out = {}
local at = 8
while ARGV[at] do
  local g = open(ARGV[at], ARGV[at + 1])
  local last = at + 1 + ARGV[at + 1]
  for i = at + 2, last do
    out[#out + 1] = safely(submit, g, ARGV[i])
  end
  at = last + 1
end
return out
