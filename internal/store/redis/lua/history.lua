#!lua flags=no-writes
-- Purpose: lists entries of the archive of a shard, the newest first, without their bodies.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 the newest id to look at, as XREVRANGE takes it; 2 the oldest; 3 how many entries to look at; 4 producer, 5 id,
--   6 ending, each '' for any
-- Returns: how many were looked at; the id of the last of these; 1 when older ones may follow, else 0; then each entry that
--   matches: its id, its names and values
local SLICE = 20            -- entries of one command: bodies may be large
local MAXREAD = 1024 * 1024 -- bytes to read in one call
local key, newest, most = KEYS[1] .. ARCHIVE, ARGV[1], tonumber(ARGV[3])
local out, looked, read, last, more = {}, 0, 0, '', 1

-- wanted gives the fields of an entry that matches, with the first line of the record alone.
local function wanted(fields)
  local named = {}
  for i = 1, #fields, 2 do
    named[fields[i]] = i + 1
  end
  local function differs(name, value)
    return value ~= '' and fields[named[name] or 0] ~= value
  end
  local at = named.record
  if at then
    read = read + #fields[at]
    fields[at] = string.match(fields[at], '^[^\n]*\n?')
  end
  if differs('producer', ARGV[4]) or differs('id', ARGV[5]) or differs('ended', ARGV[6]) then
    return nil
  end
  return fields
end

while looked < most and read < MAXREAD do
  local entries = call('XREVRANGE', key, newest, ARGV[2], 'COUNT', math.min(SLICE, most - looked))
  for _, entry in ipairs(entries) do
    looked, last = looked + 1, entry[1]
    local fields = wanted(entry[2])
    if fields then
      out[#out + 1] = {entry[1], fields}
    end
  end
  if #entries == 0 then
    more = 0
    break
  end
  newest = '(' .. last
end
return {looked, last, more, unpack(out)}
