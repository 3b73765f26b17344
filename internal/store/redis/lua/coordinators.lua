#!lua flags=allow-oom
-- Purpose: shares the report of a coordinator with all others, and finds coordinators that ended without a clean stop.
--   In the first shard only.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 the coordinator; 2 "running" or "stopped"; 3 and 4 the lasting and the passing part of its report, each a line;
--   5 milliseconds for which the passing part holds, and after which a silent coordinator has ended; 6 milliseconds for
--   which a report is kept; 7 how many reports are kept at most; 8 "1" to find ends: the caller may not be able to tell
--   an end from an outage of Redis
-- Returns: for each other coordinator, the latest first: its name; "running", "stopped" or "ended"; 1 where this call has
--   found its end; how many milliseconds ago it reported, and was last seen; and both parts of its report, "" for a
--   passing part that does not hold
local key, who, holds, kept, most = KEYS[1] .. REPORTS, ARGV[1], tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])

local function keep(r)
  call('HSET', key, r.name, table.concat({stamp(r.at), r.state, r.lasting, r.passing}, '\n'))
end

keep({name = who, at = now, state = ARGV[2], lasting = ARGV[3], passing = ARGV[4]})
call('PEXPIRE', key, kept)

-- common is the coordinators' common time, in which they count: the clock may have jumped since the last counts.
local counted, pulses = {}, call('HGETALL', KEYS[1] .. PULSE)
for i = 1, #pulses, 2 do
  counted[pulses[i]] = string.find(pulses[i], '/', 1, true) and tonumber(pulses[i + 1]) or nil
end
local common = counted[who] or now

local function read(name, text)
  local at, state, lasting, passing = string.match(text, '^(%d+)\n(%a+)\n([^\n]*)\n(.*)$')
  return {name = name, at = tonumber(at) or 0, state = state, lasting = lasting, passing = passing, found = 0}
end

-- judge brings a report up to date, and says whether the report has changed. A coordinator that has not counted while the
-- clock was ahead is behind the common time for long, and its reports say that it lives.
local function judge(r)
  local at, state, passing = r.at, r.state, r.passing
  r.unseen = math.max(0, common - math.max(r.at, counted[r.name] or 0))
  r.at = math.min(r.at, now) -- the clock was set back: from now on the report ages
  r.unseen = math.min(r.unseen, now - r.at)
  if now - r.at > holds then
    r.passing = ''
  end
  if ARGV[8] == '1' then
    if r.state == 'running' and r.unseen > holds then
      r.state, r.found = 'ended', 1
    elseif r.state == 'ended' and r.unseen <= holds then
      r.state = 'running'
    end
  end
  return r.at ~= at or r.state ~= state or r.passing ~= passing
end

local reports, gone, all = {}, {}, call('HGETALL', key) -- what is too much goes in parts
for i = 1, #all, 2 do
  reports[#reports + 1] = read(all[i], all[i + 1])
end
table.sort(reports, function(a, b) return a.at > b.at end)
local out = {}
for i, r in ipairs(reports) do
  if i > most or not r.state or now - r.at > kept then
    if #gone < MAXCALL then
      gone[#gone + 1] = r.name
    end
  elseif r.name ~= who then
    if judge(r) then
      keep(r)
    end
    for _, value in ipairs({r.name, r.state, r.found, now - r.at, r.unseen, r.lasting, r.passing}) do
      out[#out + 1] = value
    end
  end
end
if #gone > 0 then
  call('HDEL', key, unpack(gone))
end
return out
