-- Purpose: shared by the scripts that work on paged messages alone. They do without the prelude, since every part costs
--   time at each call. cell.lua says what a cell is.
local call = redis.call
local time = call('TIME')
-- now_text is the time in 13 digits, also before 2001, when it had 12.
local now_text = string.sub('0' .. time[1] .. string.sub('00000' .. time[2], -6, -4), -13)
local now = tonumber(now_text)

-- paged names the keys of one producer's paged messages.
local function paged(producer)
  local base = KEYS[1] .. producer .. ':'
  return {base = base, ids = {}, cells = {
    [FIRST] = base .. KEPT[FIRST] .. CELLS, [COMMITTED] = base .. KEPT[COMMITTED] .. CELLS,
  }}
end

-- seen says whether the shard is as the caller saw it last, as far as this script can tell, and up to when messages
-- were created that a loss may have brought back. Otherwise look in the prelude records the loss.
local function seen(who, generation, count)
  local pulse = call('HMGET', KEYS[1] .. PULSE, 'generation', who, SUSPECT)
  local same = pulse[1] == generation and tonumber(pulse[2] or 0) >= tonumber(count)
  return generation == '' or same, tonumber(pulse[3] or 0)
end

-- live says whether a lease that ends at due still holds. An end too far away comes from a clock that jumped.
local function live(due)
  return due > now and due <= now + MAXLEASE
end
