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
local silence, kept, most = tonumber(ARGV[2]), tonumber(ARGV[3]), math.min(MAXCALL, tonumber(ARGV[4]))

call('HSETNX', key, who, now)
call('PEXPIRE', key, PULSERETENTION)
call('HSET', KEYS[1] .. LAYOUTS, who, ARGV[6])
call('PEXPIRE', KEYS[1] .. LAYOUTS, PULSERETENTION)

local OLDER = 'older' -- when a coordinator that noted no layout was forgotten: it may have been cut off, and come back
local DAY = 24 * 3600 * 1000

local pulses, layouts = call('HGETALL', KEYS[1] .. PULSE), call('HGETALL', KEYS[1] .. LAYOUTS)
local counted = {}
for i = 1, #pulses, 2 do
  counted[pulses[i]] = string.find(pulses[i], '/', 1, true) and tonumber(pulses[i + 1]) or nil
end

-- common is the coordinators' common time, in which they count: the clock may have jumped since the last counts.
local common = counted[who] or now

-- forget removes fields of a hash, at most MAXCALL of them at a time.
local function forget(hash, names)
  if #names > 0 then
    call('HDEL', hash, unpack(names, 1, math.min(#names, MAXCALL)))
  end
end

-- lowest finds the lowest layout. It forgets the layouts of coordinators that are gone.
local function lowest(running)
  local low, noted, gone = tonumber(ARGV[6]), {}, {}
  for i = 1, #layouts, 2 do
    noted[layouts[i]] = tonumber(layouts[i + 1])
    if layouts[i] == OLDER then
      low = now - layouts[i + 1] < DAY and 0 or low
    elseif not counted[layouts[i]] and layouts[i] ~= who and not running[layouts[i]] then
      gone[#gone + 1] = layouts[i]
    end
  end
  forget(KEYS[1] .. LAYOUTS, gone)
  for name in pairs(running) do
    low = math.min(low, noted[name] or 0)
  end
  for name, count in pairs(counted) do
    if common - count < silence then
      low = math.min(low, noted[name] or 0)
    end
  end
  return low
end

local running, ends, back, all = {}, {}, {}, call('HGETALL', key)
for i = 1, #all, 2 do
  local name = all[i]
  local last = math.max(tonumber(all[i + 1]) or 0, counted[name] or 0)
  running[name] = true
  if name ~= who and common - last > silence then
    ends[#ends + 1] = {name = name, ago = common - last}
  else
    back[#back + 1] = name
  end
end
if ARGV[5] ~= '1' then
  return {lowest(running)}
end
forget(reported, back)
table.sort(ends, function(a, b) return a.ago < b.ago end)
local out, gone = {0}, {}
for i, one in ipairs(ends) do
  if i <= most and one.ago <= kept then
    out[#out + 1] = one.name
    out[#out + 1] = one.ago
    out[#out + 1] = call('HSETNX', reported, one.name, now)
  elseif #gone < MAXCALL then
    gone[#gone + 1] = one.name
    running[one.name] = nil
  end
end
if #out > 1 then
  call('PEXPIRE', reported, PULSERETENTION)
end
if #gone > 0 then
  -- A coordinator that noted no layout may come back.
  for _, layout in ipairs(call('HMGET', KEYS[1] .. LAYOUTS, unpack(gone))) do
    if not layout then
      call('HSET', KEYS[1] .. LAYOUTS, OLDER, now)
      table.insert(layouts, OLDER)
      table.insert(layouts, now)
      break
    end
  end
end
forget(key, gone)
forget(reported, gone)
out[1] = lowest(running)
return out
