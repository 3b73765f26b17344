#!lua flags=allow-oom
-- Purpose: makes messages due now and claims those that nobody holds.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 to 3 who claims, and generation and its count as it last saw them; 4 where a Submit leads from each kept state,
--   one character each, "-" for nowhere; 5 token; 6 lease in milliseconds; 7 how many bytes of records, unpacked, are claimed at
--   most; then for each producer: name, number of messages, and for each message: id, and when it was created, where the
--   caller has the rest of it
-- Returns: for each message reply + state; or, when it was claimed, {producer, id, record, confirms, publishes, copies,
--   sendable_at, deletes, due, awaited}; or HELD + state, when it was claimed and is what the caller has. Then the time
local leads, token, lease, room = ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])

local function submit(g, id, at)
  local s, due = find(g, id)
  if s == 0 then
    return MISSING
  end
  local to = tonumber(string.sub(leads, s, s))
  if not to then
    return OK + s
  end
  local owner = owned(g, id)
  if s ~= to then
    call('HDEL', g.notes .. id, 'confirms', 'publishes')
    call('HSET', g.notes .. id, 'updated_at', now, 'events', told(g, id, SUBMITTED, instance(token), ''))
    g.noted = true
    renew(g, id)
    shift(g, s, to, id, now)
  elseif live(due) and owner then
    call('HSET', g.notes .. id, 'hurry', 1)
    return OK + to
  end
  if room <= 0 then
    gather(g.due[to], stamp(now), id)
    return OK + to
  end
  if s == to and not owner and known(g, id, s, ARGV[at + 1]) then
    hold(g, id, to, token, lease)
    return HELD + to
  end
  local claim = take(g, id, to, due or now, token, lease, owner)
  if not claim then
    return MISSING
  end
  room = room - weight(claim[3])
  return claim
end

look(ARGV[1], ARGV[2], ARGV[3])
local out = groups(8, 2, submit, index_all, pass)
out[#out + 1] = now
return out
