#!lua flags=allow-oom
-- Purpose: notes at which coordinators a producer attends, and finds these coordinators.
-- KEYS: 1 the key of the producer
-- ARGV: 1 the mailbox of a coordinator that announces itself, empty to look only; 2 milliseconds for which that holds, 0 takes
--   it back; 3 milliseconds for which the producer is remembered
-- Returns: for how many milliseconds the producer is still remembered, negative when it is not; then the mailboxes that are
--   announced now
local key, mailbox, lasting = KEYS[1], ARGV[1], tonumber(ARGV[2])
local remembered = 'last' -- a member with the score 0, which keeps the key

if mailbox ~= '' then
  call('ZREMRANGEBYSCORE', key, '(0', '(' .. stamp(now))
  if lasting > 0 then
    call('ZADD', key, 0, remembered, stamp(now + lasting), mailbox)
    call('PEXPIRE', key, ARGV[3])
  else
    call('ZREM', key, mailbox)
  end
end
local out = {call('PTTL', key)}
for _, name in ipairs(call('ZRANGEBYSCORE', key, '(' .. stamp(now), '+inf')) do
  out[#out + 1] = name
end
return out
