-- Purpose: what all scripts share; it stands in front of each of them. keys.go puts a line before it that defines, from
--   the table of states:
--     KEPT       names of the states that are kept whole, by precedence; a state's code is its place here
--     FINAL      the names of the final states by code, the codes beyond those of KEPT
--     FIRST      code of the state a new message has
--     COMMITTED  code of the state a message has once its verdict stands
--     ACKNOWLEDGED  code of the state in which only the marker is still to be deleted; its name begins what is then left of
--                the record
--     CREATED, LEASES, RECORD, NOTES, PRODUCERS, PULSE, SUSPECT   parts of key names
--     SUBMITTED, TAKENOVER, NOBODY  what a timeline calls these
--     MAXHAPPENINGS, MAXCAUSE  bounds of a timeline
--     MAXDUE, MAXLEASE, RETENTION, PULSERETENTION   milliseconds
-- Replies about one message are an integer, verdict + state code (0 is none), or a text when its keys cannot be worked on.
local OK, ILLEGAL, LOST, EXISTS, MISSING, OVER = 0, 10, 20, 30, 40, 50

local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- open names the keys of one producer's messages in this shard, for a script that looks at count of them.
local function open(producer, count)
  local base = KEYS[1] .. producer .. ':'
  local g = {producer = producer, record = base .. RECORD, notes = base .. NOTES, leases = base .. LEASES, empty = {}}
  -- Whether an index is empty at all is worth a question of its own when it spares several.
  g.several = tonumber(count or 1) > 2
  for s = 1, #KEPT do
    g[s] = base .. KEPT[s]
  end
  return g
end

-- head reads the first line of a record: what it is, since when, and the digest of its content.
local function head(g, id)
  local text = call('GETRANGE', g.record .. id, 0, 99)
  if text == '' then
    return nil
  end
  local kind, ms, digest = string.match(text, '^(%S+) (%d+) (%S+)')
  return kind or '?', tonumber(ms) or now, digest or '-'
end

-- line reads a record up to the end of its first line.
local function line(key)
  local size = 1024
  while true do
    local text = call('GETRANGE', key, 0, size - 1)
    local stop = string.find(text, '\n', 1, true)
    if stop then
      return string.sub(text, 1, stop)
    end
    if #text < size then
      return text
    end
    size = size * 4
  end
end

-- ended gives the code of the final state a record is the trace of, or nil.
local function ended(kind)
  for code, name in pairs(FINAL) do
    if name == kind then
      return code
    end
  end
  return nil
end

-- indexed gives the state a message stands in, by precedence, and its due time.
local function indexed(g, id)
  for s = 1, #KEPT do
    if not g.empty[s] then
      local due = call('ZSCORE', g[s], id)
      if due then
        return s, tonumber(due)
      end
      if g.several and g.empty[s] == nil then
        g.empty[s] = call('EXISTS', g[s]) == 0
      end
    end
  end
  return nil
end

-- enter puts a message into the index of a state, and first into that of creation times.
local function enter(g, s, id, ms, due)
  call('ZADD', g[s] .. CREATED, ms, id)
  call('ZADD', g[s], due, id)
  g.empty[s] = false
end

-- unplaced gives the state of a living record that stands in no index: what its first word and its notes prove. Only a
-- committed verdict leaves its note, so such a message must not be asked about again.
local function unplaced(g, id, kind)
  if kind == KEPT[ACKNOWLEDGED] then
    return ACKNOWLEDGED
  end
  return call('HEXISTS', g.notes .. id, 'sendable_at') == 1 and COMMITTED or FIRST
end

-- find gives a message's state; a record that lost its index gets it back and is due now.
local function find(g, id)
  local s, due = indexed(g, id)
  if s then
    return s, due
  end
  local kind, ms = head(g, id)
  if not kind then
    return 0
  end
  local final = ended(kind)
  if final then
    return final
  end
  s = unplaced(g, id, kind)
  call('SADD', KEYS[1] .. PRODUCERS, g.producer)
  enter(g, s, id, ms, now)
  return s, now
end

-- live says whether a lease that ends at due still holds. One that ends too far away is the work of a clock that jumped.
local function live(due)
  return due > now and due <= now + MAXLEASE
end

-- drop takes a message out of its index, after its record was dealt with.
local function drop(g, s, id)
  call('ZREM', g[s], id)
  call('ZREM', g[s] .. CREATED, id)
  call('HDEL', g.leases, id)
  call('DEL', g.notes .. id)
end

-- shift moves a message between indexes: the new place first, so that it always stands in one.
local function shift(g, from, to, id, due)
  if from ~= to then
    local ms = call('ZSCORE', g[from] .. CREATED, id)
    if not ms then
      local _, since = head(g, id)
      ms = since or now
    end
    enter(g, to, id, ms, due)
    call('ZREM', g[from], id)
    call('ZREM', g[from] .. CREATED, id)
  else
    call('ZADD', g[to], due, id)
  end
end

-- tidy takes a producer without messages in this shard off the list of producers.
local function tidy(g)
  if call('EXISTS', unpack(g)) == 0 then
    call('SREM', KEYS[1] .. PRODUCERS, g.producer)
  end
end

-- safely runs f for one message, so that one whose keys are not what they should be fails alone.
local function safely(f, g, id, ...)
  local ok, result = pcall(f, g, id, ...)
  if ok then
    return result
  end
  return type(result) == 'table' and result.err or tostring(result)
end

-- look compares the shard with the generation and the count of its own that the caller saw last, "" where it saw none. A
-- shard that has another generation, or less of the caller's, has lost something: messages that were created up to now may
-- have been published already. That is written down before anything is claimed, and a new generation tells everyone else.
-- What others count says nothing: they may have gone on where the caller was not.
local suspect = 0
local function look(who, generation, count)
  local pulse = call('HMGET', KEYS[1] .. PULSE, 'generation', who)
  local behind = tonumber(pulse[2] or 0) < tonumber(count)
  if generation == '' or pulse[1] == generation and not behind then
    suspect = tonumber(call('GET', KEYS[1] .. SUSPECT) or 0)
    return
  end
  suspect = now
  call('SET', KEYS[1] .. SUSPECT, now, 'PX', PULSERETENTION)
  if pulse[1] == generation then
    call('HSET', KEYS[1] .. PULSE, 'generation', now)
  end
end

-- instance is whose token it is.
local function instance(token)
  return string.match(token, '^(.*)/') or token
end

-- brief brings a cause onto one line and cuts it, but not within a character of UTF-8. Messages of a batch share causes.
local briefs = {}
local function brief(cause)
  if not briefs[cause] then
    local text = string.gsub(cause, '[%s%c]+', ' ')
    local cut = math.min(#text, MAXCAUSE)
    while cut > 0 and cut < #text and string.find(text, '^[\128-\191]', cut + 1) do
      cut = cut - 1
    end
    briefs[cause] = string.sub(text, 1, cut)
  end
  return briefs[cause]
end

local function happening(first, last, times, rest)
  return string.format('%.0f %.0f %.0f %s', tonumber(first), tonumber(last), times, rest)
end

-- shrink takes one line off a timeline that is too long: the oldest that a newer one of its kind has goes into that one;
-- where all are different, the oldest goes.
local function shrink(lines)
  local seen, old, into = {}, #lines, nil
  for i, text in ipairs(lines) do
    local what = string.match(text, '^%d+ %d+ %d+ (%S+)') or ''
    if what ~= '' and seen[what] then
      old, into = i, seen[what]
    end
    seen[what] = i
  end
  if into then
    local first, times = string.match(lines[old], '^(%d+) %d+ (%d+)')
    local last, more, rest = string.match(lines[into], '^%d+ (%d+) (%d+) (.*)')
    lines[into] = happening(first, last, times + more, rest)
  end
  table.remove(lines, old)
end

-- told gives a message's timeline with one more happening: the newest first, a line each, FIRST LAST TIMES WHAT BY CAUSE.
-- What is like the newest becomes one with it. Lines that are none of ours do no harm.
local function told(g, id, what, by, cause)
  by, cause = string.gsub(by, '[%s%c]+', ''), brief(cause)
  local rest = what .. ' ' .. (by == '' and NOBODY or by) .. ' ' .. cause
  local text = call('HGET', g.notes .. id, 'events') or ''
  local first, times, before, why = string.match(text, '^(%d+) %d+ (%d+) (%S+) %S+ ()')
  local stop = string.find(text, '\n', 1, true) or #text + 1
  if before == what and string.sub(text, why, stop - 1) == cause then
    return happening(first, now, times + 1, rest) .. string.sub(text, stop)
  end
  local lines = {happening(now, now, 1, rest)}
  for line in string.gmatch(text, '[^\n]+') do
    lines[#lines + 1] = line
  end
  while #lines > MAXHAPPENINGS do
    shrink(lines)
  end
  return table.concat(lines, '\n')
end

-- take claims a message in state s for a token. The owner that its leases still name has died or lost it: that is told, and
-- of a message that was to be published a copy may be out, which is counted.
local function take(g, id, s, due, token, lease, owner)
  local record = call('GET', g.record .. id)
  if not record or ended(string.match(record, '^%S+')) then
    drop(g, s, id) -- nothing to work on: what a half-finished move left behind
    return nil
  end
  local notes = g.notes .. id
  if owner then
    if s == COMMITTED then
      call('HINCRBY', notes, 'copies', 1)
    end
    call('HSET', notes, 'events', told(g, id, TAKENOVER, instance(token), 'the lease of ' .. instance(owner) .. ' ended'))
  end
  if suspect > 0 and tonumber(string.match(record, '^%S+ (%d+)') or 0) <= suspect then
    call('HSETNX', notes, 'copies', 1)
  end
  local known = call('HMGET', notes, 'confirms', 'publishes', 'copies', 'sendable_at', 'deletes', 'hurry')
  if known[6] then
    call('HDEL', notes, 'hurry')
  end
  call('HSET', g.leases, id, token)
  call('ZADD', g[s], now + lease, id)
  return {g.producer, id, record, known[1] or '', known[2] or '', known[3] or '', known[4] or '', known[5] or '',
    due}
end
