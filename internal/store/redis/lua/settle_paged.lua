#!lua flags=allow-oom
-- Purpose: stores the verdict COMMITTED of owners that go on, and the end of messages, for paged messages of one state.
--   All other messages are left to move.lua.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 the code of their state; 2 the number of words; then for each word, which messages may share: the code of the
--   next state, token, milliseconds to hold the lease; then for each producer: name, number of messages, and for each
--   message: id, the word's number, its digest
-- Returns: for each message 0 when it was left, 1 when it was moved
local from = tonumber(ARGV[1])
local words = {}
for i = 1, tonumber(ARGV[2]) do
  words[i] = {to = tonumber(ARGV[3 * i]), token = ARGV[3 * i + 1], due = now + ARGV[3 * i + 2]}
end
-- next_of says whether a word is that of the owner in a cell, and then gives the next cell, if there is one. Messages
-- that were created and claimed together share cells.
local known = {}
local function next_of(text, number)
  local key = number .. text
  local answer = known[key]
  if not answer then
    local word = words[tonumber(number)]
    local owned = token_of(text) == word.token and live(due_of(text))
    local final = FINAL[word.to]
    answer = {owned, owned and not final and cell(created_of(text), word.due, now_text, word.token), final}
    known[key] = answer
  end
  return answer[1], answer[2], answer[3]
end

-- tidy leaves nothing of a producer without messages in this shard.
local function tidy(producer, g)
  if not forget_pages(g.base) then
    return
  end
  local indexes = {}
  for s = 1, #KEPT do
    indexes[s] = g.base .. KEPT[s]
  end
  if call('EXISTS', unpack(indexes)) == 0 then
    call('SREM', KEYS[1] .. PRODUCERS, producer)
  end
end

local function settle(producer, at, out)
  local g = paged(producer)
  local judged, gone, done = {}, {}, {}
  for i = 1, tonumber(ARGV[at + 1]) do
    g.ids[i] = ARGV[at + 3 * i - 1]
  end
  for i, text in ipairs(call('HMGET', g.cells[from], unpack(g.ids))) do
    local id, moved, text_next, final = g.ids[i], false, nil, nil
    if text and not done[id] then
      moved, text_next, final = next_of(text, ARGV[at + 3 * i])
    end
    if moved then
      done[id], gone[#gone + 1] = true, id
      if final then
        local receipt = final .. ' ' .. now_text .. ' ' .. ARGV[at + 3 * i + 1]
        if ARCHIVED then
          local record = archive.swap(g.base .. RECORD .. id, receipt)
          local committed = from == COMMITTED
          archive.add(producer, id, final, created_of(text), committed and since_of(text) or '-', committed and 1 or 0, record)
        else
          call('SET', g.base .. RECORD .. id, receipt, 'PX', RETENTION_TEXT)
        end
      else
        local n = #judged
        judged[n + 1], judged[n + 2] = id, text_next
      end
    end
    out[#out + 1] = moved and 1 or 0
  end
  if #judged > 0 then
    call('HSET', g.cells[COMMITTED], unpack(judged))
  end
  if #gone > 0 then
    call('HDEL', g.cells[from], unpack(gone))
    if #judged == 0 then
      tidy(producer, g)
    end
  end
end

local out, at = {}, 3 + 3 * #words
while ARGV[at] do
  local before = #out
  if not pcall(settle, ARGV[at], at, out) then -- unusable keys spoil only their producer
    for i = 1, tonumber(ARGV[at + 1]) do
      out[before + i] = 0
    end
  end
  at = at + 2 + 3 * ARGV[at + 1]
end
if ARCHIVED then
  archive.close()
end
return out
