#!lua flags=allow-oom
-- Purpose: claims due messages of a state, those due longest first.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 to 3 who claims, and generation and its count as it last saw them; 4 code of the state; 5 token; 6 lease in
--   milliseconds; 7 how many bytes of records, unpacked, are claimed at most, though one message always is; 8 of how many
--   brokers messages are claimed, 0 for any; then the names of these brokers, empty for the default one; then how many
--   targets are left out; then for each its producer, its address and marker store with a blank between, milliseconds that
--   its messages wait, and milliseconds from which age on they are claimed, 0 for never; then pairs of a producer and how
--   many of its messages are claimed at most. Each may take an equal part of the bytes, and of what those before it have
--   left
-- Returns: for each claim {producer, id, record, confirms, publishes, copies, sendable_at, deletes, due, awaited}; for
--   what had no record, and left the index, {producer, id}; for what could not be worked on, and was put off, {producer,
--   id, why}; for what another broker is to get, and was parked, {producer, id, '', broker}; for what waits for a target
--   that is left out, {producer, id, '', address}; then the time
local s, token, lease, room = tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local brokers = tonumber(ARGV[8])
local open_to = {}
for i = 9, 8 + brokers do
  open_to[ARGV[i]] = true
end

-- left_out has for each producer the targets that are left out, by address and marker store.
local left_out, pairs_at = {}, 10 + brokers + 4 * ARGV[9 + brokers]
for i = 10 + brokers, pairs_at - 1, 4 do
  left_out[ARGV[i]] = left_out[ARGV[i]] or {}
  left_out[ARGV[i]][ARGV[i + 1]] = {wait = tonumber(ARGV[i + 2]), age = tonumber(ARGV[i + 3])}
end

-- parked has the brokers whose messages were parked just now. An entry is of no use after PARKTIME.
local parked = {}

-- elsewhere gives the broker of a message if it is none of those to claim for.
local function elsewhere(g, id)
  if brokers == 0 then
    return nil
  end
  local text = call('GETRANGE', g.record .. id, 0, 199)
  local broker = broker_of(text)
  return text ~= '' and not open_to[broker] and broker or nil
end

-- delay makes a message due later. An owner whose lease has ended loses the message, of which that owner may have sent
-- a copy.
local function delay(g, id, wait)
  local owner = owned(g, id)
  if owner then
    note_lost(g, id, s, owner, token)
    g.freed[#g.freed + 1] = id
  end
  local due = stamp(now + wait)
  gather(g.due[s], due, id)
  return due
end

-- put_off delays a message whose target is left out, and says whether it did. A wait ends where the age begins from
-- which on the message is claimed.
local function put_off(g, id)
  local targets = left_out[g.producer]
  if not targets then
    return nil
  end
  local created, header = string.match(line(g.record .. id), '^%a+ (%d+) %S+ [^{]*({.*})')
  local readable, fields = pcall(cjson.decode, header or '') -- what cannot be read is claimed, and set aside
  local address = readable and fields.callback_target or ''
  local target = readable and targets[address .. ' ' .. (fields.markers or '')]
  local left = target and (target.age > 0 and created + target.age - now or target.wait)
  if not left or left <= 0 then
    return nil
  end
  delay(g, id, math.min(left, target.wait))
  return {g.producer, id, '', address}
end

-- park lets a message wait until its broker is claimed for, or for PARKTIME.
local function park(g, id, broker)
  local due = delay(g, id, PARKTIME)
  parked[broker] = true
  call('ZADD', KEYS[1] .. PARKED .. broker, due, g.producer .. '/' .. id)
  return {g.producer, id, '', broker}
end

-- due gives ids and their due times. Due times later than any legal one were set by a clock that jumped.
local function due(index, limit)
  local ids, since = {}, {}
  local found = call('ZRANGEBYSCORE', index, '-inf', now, 'WITHSCORES', 'LIMIT', 0, limit)
  for i = 1, #found, 2 do
    ids[#ids + 1], since[#since + 1] = found[i], tonumber(found[i + 1])
  end
  if #ids < limit then
    local far = call('ZRANGEBYSCORE', index, '(' .. stamp(now + MAXDUE), '(' .. stamp(BEHIND), 'LIMIT', 0, limit - #ids)
    for _, id in ipairs(far) do
      ids[#ids + 1], since[#since + 1] = id, now
    end
  end
  return ids, since
end

-- claim claims the messages of one producer, as far as there is room for it, and puts them into out.
local function claim(g, since, part, out)
  local got, left = {}, false
  each(g, function(_, id, i)
    if part <= 0 then
      return nil
    end
    local broker = elsewhere(g, id)
    if broker then
      return park(g, id, broker)
    end
    local waits = put_off(g, id)
    if waits then
      return waits
    end
    local claimed = take(g, id, s, since[i], token, lease, owned(g, id))
    local size = claimed and weight(claimed[3]) or 0
    room, part = room - size, part - size
    left = left or not claimed
    return claimed or {g.producer, id}
  end, got)
  for i, one in ipairs(got) do
    if type(one) == 'string' then
      call('ZADD', g[s], now + LONGEST, g.ids[i])
      one = {g.producer, g.ids[i], one}
    end
    out[#out + 1] = one
  end
  if left then
    tidy(g)
  end
end

look(ARGV[1], ARGV[2], ARGV[3])
local out = {}
for i = pairs_at, #ARGV, 2 do
  local producer = ARGV[i]
  local ids, since = due(KEYS[1] .. producer .. ':' .. KEPT[s], math.min(MAXCALL, tonumber(ARGV[i + 1])))
  claim(open(producer, ids), since, room / ((#ARGV - i + 1) / 2), out)
end
for broker in pairs(parked) do
  call('PEXPIRE', KEYS[1] .. PARKED .. broker, 2 * PARKTIME)
  call('SADD', KEYS[1] .. PARKEDFOR, broker)
  call('PEXPIRE', KEYS[1] .. PARKEDFOR, 2 * PARKTIME)
end
out[#out + 1] = now
return out
