#!lua
-- Purpose: stores messages of the archive as SENDABLE. The script needs memory, so a full Redis refuses it.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 the operator, 2 the reason; then for each producer: name, number of messages, and for each message: id, digest,
--   how many copies of that id may be out, the record with any 13 digits for its time
-- Returns: for each message verdict + state
local by, why = ARGV[1], ARGV[2]

-- refusal says why a name cannot be used: an unfinished message has it, or a finished one with other content, or one that
-- was rolled back.
local function refusal(g, id, digest)
  local kind, _, theirs = head(g, id)
  local final = kind and ended(kind)
  if final then
    if final ~= DONE then
      return ILLEGAL + final
    end
    return theirs ~= digest and theirs ~= '-' and EXISTS + final or nil
  end
  local state = find(g, id)
  return state ~= 0 and ILLEGAL + state or nil
end

local function replay(g, id, at)
  local digest, copies, record = ARGV[at + 1], tonumber(ARGV[at + 2]), ARGV[at + 3]
  local refused = refusal(g, id, digest)
  if refused then
    return refused
  end
  call('SET', g.record .. id, record)
  call('SETRANGE', g.record .. id, 5, string.format('%013.0f', now))
  redis.pcall('HDEL', g.leases, id)
  call('DEL', g.notes .. id)
  call('HSET', g.notes .. id, 'events', told(g, id, REPLAYED, by, why), 'updated_at', now)
  if copies > 0 then
    call('HSET', g.notes .. id, 'copies', copies)
  end
  call('SADD', KEYS[1] .. PRODUCERS, g.producer)
  enter(g, COMMITTED, id, stamp(now), now)
  gather(g.judged, id, stamp(now))
  return STORED + COMMITTED
end

return groups(3, 4, replay, index_all, pass)
