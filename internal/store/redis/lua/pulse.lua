#!lua flags=allow-oom
-- Purpose: looks at a shard, counts on, and tells when the clock has jumped. A full Redis may go back in time as well, so
--   this needs next to no room.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 who counts; 2 and 3 generation and its own count as it last saw them, "" and 0 at first; 4 the clock as it last
--   saw that, 0 at first; 5 and 6 how many milliseconds have passed since then at least and at most, by its own clock;
--   7 "1" to drop the counts of coordinators that are gone
-- Returns: {generation, count, clock, by how many milliseconds the clock has jumped}
local key, who, clock, least, most = KEYS[1] .. PULSE, ARGV[1], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local DAY = 24 * 3600 * 1000

-- each_count calls f with every coordinator and its count. Fields without a slash are not counts.
local function each_count(f)
  local all = call('HGETALL', key)
  for i = 1, #all, 2 do
    if string.find(all[i], '/', 1, true) then
      f(all[i], tonumber(all[i + 1]))
    end
  end
end

-- next_count gives the count. The counts of all coordinators are one time, which never goes back: it begins with the
-- newest count, and goes on with the callers' clocks while Redis's clock is behind. A caller's time counts from the count
-- that it saw last: a count whose reply was lost has taken the same time already.
local function next_count()
  local own = tonumber(call('HGET', key, who) or 0)
  if own > 0 then
    return math.max(now, own + 1, clock > 0 and tonumber(ARGV[3]) + least or 0)
  end
  local newest = now
  each_count(function(_, count) newest = math.max(newest, count) end)
  return newest
end

-- jump says by how much the clock has jumped since the caller saw it. At the caller's first look it says by how much
-- the clock is behind what it was at the last look of any coordinator, whose counts may be ahead for another jump.
local function jump()
  if clock == 0 then
    local last = tonumber(call('HGET', key, CLOCK) or 0)
    return now < last - CLOCKSLACK and now - last or 0
  end
  if now < clock + least - CLOCKSLACK then
    return now - clock - least
  end
  return now > clock + most + CLOCKSLACK and now - clock - most or 0
end

look(who, ARGV[2], ARGV[3])
call('HSETNX', key, 'generation', now)
local count = next_count()
local jumped = jump()
call('HSET', key, who, count, CLOCK, now)
call('PEXPIRE', key, PULSERETENTION)
local function distrustClock(ms)
  distrust(ms)
  call('HSET', key, JUMPED, ms) -- so that nobody takes it for a loss
end
-- Receipts end by the clock. Forward, it has ended some that should tell of messages which are sent again. Backward, no
-- message that is created from now on is one of those which were suspect while the clock was ahead.
if jumped >= RETENTION / 2 then
  distrustClock(math.max(suspect, now + RETENTION))
elseif jumped < 0 and suspect > now + RETENTION then
  distrustClock(now + RETENTION)
end
-- A coordinator without a count for a day is gone for good. The caller has waited until all living ones have counted by
-- the present clock.
if ARGV[7] == '1' then
  local gone = {}
  each_count(function(name, last)
    if last < count - DAY and #gone < MAXCALL then
      gone[#gone + 1] = name
    end
  end)
  if #gone > 0 then
    call('HDEL', key, unpack(gone))
  end
end
return {call('HGET', key, 'generation'), count, now, jumped}
