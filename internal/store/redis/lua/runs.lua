#!lua flags=allow-oom
-- Purpose: notes that a coordinator runs, finds others that ended without a clean stop, and the lowest of the newest layouts
--   that coordinators use. In the first shard only.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 who runs; 2 milliseconds without a count in the pulse after which a coordinator counts as ended;
--   3 milliseconds for which an end is remembered; 4 how many ends are remembered at most;
--   5 1 to find ends, 0 only to note the run: the caller may not be able to tell an end from an outage of Redis;
--   6 the newest layout that the caller uses
-- Returns: the lowest layout of the coordinators that run or may hang, 0 where a version notes none; then for each end, the
--   latest first: who it was, how many milliseconds ago it last counted, and 1 where no coordinator has reported this end before
local key, reported, who = KEYS[1] .. RUNS, KEYS[1] .. REPORTED, ARGV[1]
local silence, kept, most = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

call('HSETNX', key, who, now)
call('PEXPIRE', key, PULSERETENTION)
call('HSET', KEYS[1] .. LAYOUTS, who, ARGV[6])
call('PEXPIRE', KEYS[1] .. LAYOUTS, PULSERETENTION)

local OLDER = 'older' -- when a coordinator that noted no layout was forgotten: it may have been cut off, and come back
local DAY = 24 * 3600 * 1000

-- lowest finds the lowest layout. It forgets the layouts of coordinators that are gone.
local function lowest()
  local low, counted, noted = tonumber(ARGV[6]), {}, {}
  local pulses = call('HGETALL', KEYS[1] .. PULSE)
  for i = 1, #pulses, 2 do
    counted[pulses[i]] = string.find(pulses[i], '/', 1, true) and tonumber(pulses[i + 1]) or nil
  end
  local layouts = call('HGETALL', KEYS[1] .. LAYOUTS)
  for i = 1, #layouts, 2 do
    noted[layouts[i]] = tonumber(layouts[i + 1])
    if layouts[i] == OLDER then
      low = now - layouts[i + 1] < DAY and 0 or low
    elseif not counted[layouts[i]] and layouts[i] ~= who and call('HEXISTS', key, layouts[i]) == 0 then
      call('HDEL', KEYS[1] .. LAYOUTS, layouts[i])
    end
  end
  for _, name in ipairs(call('HKEYS', key)) do
    low = math.min(low, noted[name] or 0)
  end
  for name, count in pairs(counted) do
    if now - count < silence then
      low = math.min(low, noted[name] or 0)
    end
  end
  return low
end

if ARGV[5] ~= '1' then
  return {lowest()}
end
local ends, all = {}, call('HGETALL', key)
for i = 1, #all, 2 do
  local name = all[i]
  local last = math.max(tonumber(all[i + 1]) or 0, tonumber(call('HGET', KEYS[1] .. PULSE, name) or 0))
  if name ~= who and now - last > silence then
    ends[#ends + 1] = {name = name, ago = now - last}
  else
    call('HDEL', reported, name)
  end
end
table.sort(ends, function(a, b) return a.ago < b.ago end)
local out = {0}
for i, gone in ipairs(ends) do
  if i > most or gone.ago > kept then
    if not call('HGET', KEYS[1] .. LAYOUTS, gone.name) then
      call('HSET', KEYS[1] .. LAYOUTS, OLDER, now)
    end
    call('HDEL', key, gone.name)
    call('HDEL', reported, gone.name)
  else
    out[#out + 1] = gone.name
    out[#out + 1] = gone.ago
    out[#out + 1] = call('HSETNX', reported, gone.name, now)
  end
end
if #out > 1 then
  call('PEXPIRE', reported, PULSERETENTION)
end
out[1] = lowest()
return out
