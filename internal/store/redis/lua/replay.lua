#!lua
-- Purpose: stores messages of the archive as SENDABLE. The script needs memory, so a full Redis refuses it.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 the operator, 2 the reason, 3 "true" to change nothing; then for each producer: name, number of messages, and for
--   each message: id, digest, when it ended, how many copies of that id may be out, the record with any 13 digits for its time
-- Returns: for each message reply + state
local by, why, dry = ARGV[1], ARGV[2], ARGV[3] == 'true'

-- refusal says why a name cannot be used: an unfinished message has it, or one that was rolled back, or ended again since, or
-- has other content.
local function refusal(g, id, digest, ms)
  local kind, since, theirs = head(g, id)
  if kind == POINTER then
    return EXISTS -- the message is in the shard of its key
  end
  local final = kind and ended(kind)
  if final then
    if final ~= DONE or since > ms then
      return (theirs ~= digest and EXISTS or ILLEGAL) + final
    end
    return theirs ~= digest and EXISTS + final or nil
  end
  local state = kind and dry and unplaced(g, id, kind) or find(g, id)
  return state ~= 0 and ILLEGAL + state or nil
end

local function replay(g, id, at)
  local digest, ms, copies, record = ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), ARGV[at + 4]
  local refused = refusal(g, id, digest, ms)
  if refused then
    return refused
  end
  if dry then
    return OK + COMMITTED
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

return groups(4, 5, replay, dry and pass or index_all, pass)
