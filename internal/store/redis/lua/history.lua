#!lua flags=no-writes
-- Purpose: lists entries of the archive of a shard, the newest first, without their bodies.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 the newest id to look at, as XREVRANGE takes it; 2 the oldest; 3 how many entries to look at; 4 producer, 5 id,
--   6 ending, each '' for any
-- Returns: how many were looked at; the id of the last of these; 1 when older ones may follow, else 0; then each entry that
--   matches: its id, the line about the message, the first line of its record
local MAXREAD = 1024 * 1024 -- bytes to read in one call
local SLICE = math.max(1, math.min(20, math.floor(MAXREAD / (ARCHIVEBODY + 1)))) -- entries of one command: bodies may be large
local key, newest, most = KEYS[1] .. ARCHIVE, ARGV[1], math.min(MAXCALL, tonumber(ARGV[3]))
local out, looked, read, last, more = {0, '', 1}, 0, 0, '', 1

-- matches says whether the line about a message has what is asked for.
local function matches(message)
  local ended, producer, id = string.match(message, '^(%S+) %S+ %S+ %S+ %S+ (%S+) (%S+)$')
  return (ARGV[4] == '' or producer == ARGV[4]) and (ARGV[5] == '' or id == ARGV[5]) and (ARGV[6] == '' or ended == ARGV[6])
end

while looked < most and read < MAXREAD do
  local entries = call('XREVRANGE', key, newest, ARGV[2], 'COUNT', math.min(SLICE, most - looked))
  for _, entry in ipairs(entries) do
    looked, last = looked + 1, entry[1]
    local message, record = entry[2][2], entry[2][4] or ''
    read = read + #record
    if matches(message) then
      out[#out + 1] = {entry[1], message, string.match(record, '^[^\n]*\n?')}
    end
  end
  if #entries == 0 then
    more = 0
    break
  end
  newest = '(' .. last
end
out[1], out[2], out[3] = looked, last, more
return out
