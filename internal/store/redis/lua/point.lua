#!lua
-- Purpose: writes pointers to the shards of chains, in place of the records of messages with an ordering key. A pointer is
--   the text POINTER TIME KEY.
-- KEYS: 1 the shard's prefix
-- ARGV: for each producer: name, number of messages, and for each message: id, ordering key
-- Returns: for each message STORED when it has a pointer to the shard of its key now; MISSING when it has one to that of
--   another key; or EXISTS + state
local function point(g, id, at)
  local key, kind, _, theirs = ARGV[at + 1], head(g, id)
  if kind and kind ~= POINTER then
    return EXISTS + find(g, id)
  end
  if kind and theirs ~= key then
    return MISSING
  end
  call('SET', g.record .. id, POINTER .. ' ' .. stamp(now) .. ' ' .. key) -- the time tells the sweeper that it is new
  return STORED
end

return groups(1, 2, point, index_all, pass)
