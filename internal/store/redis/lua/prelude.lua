-- Purpose: shared by all scripts: the names of keys and how keys are read. The prelude precedes each script. Then come
--   the parts that scripts.go lists for the script: writes.lua, timeline.lua, claims.lua. A script gets only the parts
--   it needs, because every part costs time at each call. luanames.go puts a line before the prelude that defines, from
--   the table of states:
--     KEPT       names of the states that are kept whole, by precedence; a state's code is its place here
--     FINAL      the names of the final states by code, the codes beyond those of KEPT
--     FIRST      code of the state a new message has
--     COMMITTED  code of the state a message has once its verdict stands
--     ACKNOWLEDGED  code of the state in which only the marker is still to be deleted; its name begins what is then left of
--                the record
--     CREATED, LEASES, VERDICTS, RECORD, NOTES, CELLS, PAGES, PAGE, PRODUCERS, PULSE, SUSPECT, JUMPED, CLOCK,
--                REPORTS, CHART, PARKED, ARCHIVE, ARCHIVEFULL, DROPPED, KEYOF, CHAIN, AWAITED   parts of key names
--     BEHIND     the due time of a committed message that stands behind another one of its chain: later than any other
--     POINTER    the first word of a pointer to the shard of a message's chain; it stands in place of a record
--     SUBMITTED, TRUSTED, REPLAYED, TAKENOVER, UNNAMED  what a timeline calls these
--     MAXHAPPENINGS, MAXCAUSE  bounds of a timeline
--     MAXCALL    how many messages one call works on at most
--     MAXDUE, MAXLEASE, LONGEST, CLOCKSLACK, RETENTION, PULSERETENTION, PAGESPAN, PAGELIFE, PARKTIME   milliseconds
--     ARCHIVED   milliseconds that the archive keeps a message, or false without an archive
--     ARCHIVEMOST, ARCHIVEBODY   bounds of the archive
--     DONE, DISCARDED   code of a final state, and what the archive calls the end of a discarded message
-- Replies about one message are an integer, reply + state code (0 is none), or a text when its keys cannot be worked on.
local OK, ILLEGAL, LOST, EXISTS, MISSING, OVER, STORED, HELD, REPAIRED, WAITS, KEYHELD = 0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100

local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- stamp formats a time for commands. Formatting is expensive, and messages of a batch share times.
local stamps = {}
local function stamp(ms)
  local text = stamps[ms]
  if not text then
    text = string.format('%d', ms)
    stamps[ms] = text
  end
  return text
end

-- open names the keys of one producer's messages in this shard, for a script about these ids. A question about one
-- message is asked about all of them in one command, and writes to shared keys are gathered until flush.
local function open(producer, ids)
  local base = KEYS[1] .. producer .. ':'
  local g = {producer = producer, base = base, record = base .. RECORD, notes = base .. NOTES, leases = base .. LEASES,
    verdicts = base .. VERDICTS, page = base .. PAGE, pages = base .. PAGES, ids = ids or {}, alone = not ids,
    keys = base .. KEYOF, chain = base .. CHAIN, awaited = base .. AWAITED,
    known = {}, created = {}, due = {}, gone = {}, held = {},
    freed = {}, judged = {}, dropped = {}, leaving = {}, waiting = {}}
  for s = 1, #KEPT do
    g[s] = base .. KEPT[s]
    g.created[s], g.due[s], g.gone[s] = {}, {}, {}
  end
  return g
end

-- ask reads the value of a shared key for a message. The first call reads the values of all messages.
local function ask(g, command, key, id)
  local known = g.known[key]
  if not known then
    known = {}
    g.known[key] = known
    if not g.alone then
      for i, value in ipairs(call(command, key, unpack(g.ids))) do
        known[g.ids[i]] = value
      end
    end
  end
  if known[id] ~= nil then
    return known[id]
  end
  return call(command, key, id)[1]
end

-- score is a message's place in an index, or false.
local function score(g, index, id)
  return ask(g, 'ZMSCORE', index, id)
end

-- owned gives the token of the lease on a message, or false.
local function owned(g, id)
  return ask(g, 'HMGET', g.leases, id)
end

-- noted says whether a message may have notes. Most messages have none, so one command checks all messages.
local function noted(g)
  if g.noted == nil and not g.alone then
    local keys = {}
    for i, id in ipairs(g.ids) do
      keys[i] = g.notes .. id
    end
    g.noted = call('EXISTS', unpack(keys)) > 0
  end
  return g.noted or g.alone
end

-- head reads the first line of a record: its first word, its time and the digest of the content.
local function head(g, id)
  local text = call('GETRANGE', g.record .. id, 0, 149)
  if text == '' then
    return nil
  end
  local kind, ms, digest = string.match(text, '^(%S+) (%d+) (%S+)')
  local created = tonumber(ms) or 0 -- 0 while the message is paged
  return kind or '?', created > 0 and created or now, digest or '-'
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

-- ended gives the code of the final state in a receipt, or nil.
local function ended(kind)
  for code, name in pairs(FINAL) do
    if name == kind then
      return code
    end
  end
  return nil
end

-- indexed gives the state whose index holds a message, by precedence, and the due time.
local function indexed(g, id)
  for s = 1, #KEPT do
    local due = score(g, g[s], id)
    if due then
      return s, tonumber(due)
    end
  end
  return nil
end

-- judged says when a message's verdict was stored, or false.
local function judged(g, id)
  return ask(g, 'HMGET', g.verdicts, id)
end

-- broker_of gives the broker that a record names, '' for the default one. The broker begins the JSON.
local function broker_of(record)
  return string.match(record, '^%a+ %d+ %S+ [%d ]*{"broker":"([^"]+)"') or ''
end

-- unplaced gives the state of a living record without an index: the first word and the verdict prove the state. A
-- message with a verdict must not be asked about again.
local function unplaced(g, id, kind)
  if kind == KEPT[ACKNOWLEDGED] then
    return ACKNOWLEDGED
  end
  return judged(g, id) and COMMITTED or FIRST
end

-- live says whether a lease that ends at due still holds. An end too far away comes from a clock that jumped.
local function live(due)
  return due > now and due <= now + MAXLEASE
end

-- renewed is the generation after another: the time, or more if the other began in this very millisecond.
local function renewed(generation)
  return stamp(math.max(now, (tonumber(generation) or 0) + 1))
end

-- distrust makes suspect the messages that were created up to a time: they may have been published already.
local suspect = 0
local function distrust(ms)
  suspect = ms
  call('SET', KEYS[1] .. SUSPECT, suspect, 'PX', PULSERETENTION)
  call('HSET', KEYS[1] .. PULSE, SUSPECT, suspect) -- for the scripts that read both with one command
end

-- look compares the shard with the generation and the caller's own count as the caller saw them last, "" at first.
-- Another generation, or a lower count, proves a loss: messages that were created up to now may have been published
-- already. The loss is recorded before anything is claimed, and a new generation tells all other coordinators. Counts
-- of others prove nothing: they may have gone on where the caller was not. A server whose clock is behind may have
-- become the master. Then the caller's count is the newest time known of the old clock, and SINCE milliseconds later it
-- would have been increased.
local SINCE = 1000
local function look(who, generation, count)
  local pulse = call('HMGET', KEYS[1] .. PULSE, 'generation', who)
  local seen = tonumber(count)
  suspect = tonumber(call('GET', KEYS[1] .. SUSPECT) or 0)
  if generation == '' or pulse[1] == generation and tonumber(pulse[2] or 0) >= seen then
    return
  end
  distrust(math.max(suspect, now < seen and seen + SINCE or now))
  if not pulse[1] or pulse[1] == generation then
    call('HSET', KEYS[1] .. PULSE, 'generation', renewed(generation))
  end
end
