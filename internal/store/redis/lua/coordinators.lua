#!lua flags=allow-oom
-- Purpose: shares a text under a name, usually that of a coordinator, with all others. In the first shard only.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 the name; 2 its text, empty for none; 3 milliseconds for which a text is kept;
--   4 how many texts are kept at most; 5 the name of the hash with the texts
-- Returns: for each other name, the latest first: how many milliseconds ago its text was shared, and the text
local who, kept, most, key = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4]), KEYS[1] .. ARGV[5]

if ARGV[2] == '' then
  call('HDEL', key, who)
else
  call('HSET', key, who, now .. ' ' .. ARGV[2])
  call('PEXPIRE', key, kept)
end
local shared, all = {}, call('HGETALL', key)
for i = 1, #all, 2 do
  local at, text = string.match(all[i + 1], '^(%d+) (.*)$')
  local ago = now - (tonumber(at) or 0)
  if ago < 0 then -- the clock was set back: from now on the text ages
    call('HSET', key, all[i], now .. ' ' .. text)
    ago = 0
  end
  shared[#shared + 1] = {name = all[i], ago = ago, text = text}
end
table.sort(shared, function(a, b) return a.ago < b.ago end)
local out, gone = {}, {} -- what is too much goes in parts
for i, one in ipairs(shared) do
  if i > most or one.ago > kept then
    if #gone < MAXCALL then
      gone[#gone + 1] = one.name
    end
  elseif one.name ~= who then
    out[#out + 1] = one.ago
    out[#out + 1] = one.text
  end
end
if #gone > 0 then
  call('HDEL', key, unpack(gone))
end
return out
