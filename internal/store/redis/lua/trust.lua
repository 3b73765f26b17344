#!lua flags=allow-oom
-- Purpose: stores the Submits of trusted producers as verdicts, even against a lease, and claims due messages at once.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 to 3 who claims, and generation and its count as it last saw them; 4 where a trusted Submit leads from each kept
--   state, one character each, "-" for nowhere; 5 token; 6 lease in milliseconds; 7 how many bytes of records, unpacked, are
--   claimed at most; then for each producer: name, number of messages, and for each message: id, and, where the caller has the
--   rest of it, when it was created and its delay in milliseconds
-- Returns: for each message reply + state; or, when its verdict was stored just now: {producer, id, record, confirms,
--   publishes, copies, sendable_at, deletes, due, awaited} when it was claimed, {producer, id, first line of the record}
--   when it was not; HELD + state and STORED + state in their place, when it is what the caller has. Then the time
local leads, token, lease, room = ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])

-- delayOf reads from the first line of a record how long a message waits once its verdict is stored.
local function delayOf(text)
  local header = cjson.decode(string.match(text, '^%a+ %d+ %S+ [^{]*({.*})'))
  return math.min(tonumber(header.delay_ms or 0), MAXDUE)
end

-- wake restarts an abandoned message.
local function wake(g, id)
  call('HDEL', g.notes .. id, 'confirms', 'publishes')
  call('HSET', g.notes .. id, 'updated_at', now, 'events', told(g, id, TRUSTED, instance(token), ''))
  g.noted = true
  renew(g, id)
end

-- store makes a message SENDABLE. The lease holder loses the lease: from now on the token is another, or none.
local function store(g, id, s, to, owner, due)
  gather(g.judged, id, stamp(now))
  shift(g, s, to, id, due)
  if owner then
    g.freed[#g.freed + 1] = id
  end
end

local function trust(g, id, at)
  local s, due = find(g, id)
  if s == 0 then
    return MISSING
  end
  local to = tonumber(string.sub(leads, s, s))
  if not to then
    return OK + s
  end
  local owner, text, delay = owned(g, id), nil, tonumber(ARGV[at + 2])
  local callers = not owner and s == FIRST and known(g, id, s, ARGV[at + 1])
  if not callers then
    text = line(g.record .. id)
    local kind = string.match(text, '^%S+')
    if not kind or ended(kind) then
      drop(g, s, id) -- nothing to work on: what a half-finished move left behind
      return kind and OK + ended(kind) or MISSING
    end
    delay = delayOf(text)
  end
  if s ~= FIRST then
    wake(g, id)
  end
  if behind(g, id) then
    g.waiting[#g.waiting + 1] = id
    store(g, id, s, to, owner, BEHIND)
    return callers and STORED + to or {g.producer, id, text}
  end
  if delay > 0 or room <= 0 then
    store(g, id, s, to, owner, now + delay)
    return callers and STORED + to or {g.producer, id, text}
  end
  store(g, id, s, to, nil, now + delay)
  if callers then
    hold(g, id, to, token, lease)
    return HELD + to
  end
  local claim = take(g, id, to, due, token, lease)
  claim[7] = stamp(now)
  room = room - weight(claim[3])
  return claim
end

look(ARGV[1], ARGV[2], ARGV[3])
local out = groups(8, 3, trust, index_all, pass)
out[#out + 1] = now
return out
