#!lua flags=allow-oom
-- Purpose: looks at a shard and counts on. A full Redis may go back in time as well, so this needs next to no room.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 who counts; 2 and 3 generation and its own count as it last saw them, "" and 0 at first
-- Returns: {generation, count}
local key, who = KEYS[1] .. PULSE, ARGV[1]
local DAY = 24 * 3600 * 1000

-- prune drops some counts of coordinators that have not counted for a day: they are gone for good. Fields other than
-- INSTANCE/NONCE are the generation, or the shared count of older versions, which report a rollback without that count.
local function prune()
  local all, gone = call('HGETALL', key), {}
  for i = 1, #all, 2 do
    if #gone < MAXCALL and string.find(all[i], '/', 1, true) and tonumber(all[i + 1]) < now - DAY then
      gone[#gone + 1] = all[i]
    end
  end
  if #gone > 0 then
    call('HDEL', key, unpack(gone))
  end
end

look(who, ARGV[2], ARGV[3])
if ARGV[2] == '' then
  prune() -- whoever comes makes room for itself
end
call('HSETNX', key, 'generation', now)
-- The count is the time, so it shows who counts no more. The count always grows, whatever the clock does.
local count = math.max(now, 1 + tonumber(call('HGET', key, who) or 0))
call('HSET', key, who, count)
call('PEXPIRE', key, PULSERETENTION)
return {call('HGET', key, 'generation'), count}
