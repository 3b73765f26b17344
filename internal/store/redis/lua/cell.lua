-- Purpose: how a cell is written. A cell is the text CREATED DUE SINCE TOKEN: when the message was created, when it is due
--   or its lease ends, when its verdict was stored, and the token of its owner. The times are milliseconds in 13 digits.
--   The key of the cell says the state.
local NEVER = '0000000000000'
-- UNOWNED stands in place of a token.
local UNOWNED = '-'
-- LONG_UNOWNED is the same, for the first cell of a hash: Redis keeps a hash in a hash table from the first long value
-- on. Small hashes of short values are lists, and finding a field there costs several times as much.
local LONG_UNOWNED = '-----------------------'

local function digits(ms)
  return string.format('%013d', ms)
end

local function cell(created, due, since, token)
  return created .. ' ' .. digits(due) .. ' ' .. since .. ' ' .. token
end

local function created_of(text)
  return string.sub(text, 1, 13)
end

local function due_of(text)
  return tonumber(string.sub(text, 15, 27))
end

local function since_of(text)
  return string.sub(text, 29, 41)
end

-- token_of gives the token of the owner, or false.
local function token_of(text)
  local token = string.sub(text, 43)
  return token ~= UNOWNED and token ~= LONG_UNOWNED and token
end

-- forget_pages removes the pages of a producer without cells, and says whether the producer has neither. Of FORGOTTEN
-- pages or more, which only a shard has that nobody looked after for minutes, the next call removes the others.
local FORGOTTEN = 1000
local function forget_pages(base)
  if redis.call('EXISTS', base .. KEPT[FIRST] .. CELLS, base .. KEPT[COMMITTED] .. CELLS) > 0 then
    return false
  end
  local keys = redis.call('ZRANGE', base .. PAGES, 0, FORGOTTEN - 1)
  if #keys > 0 then
    for i, page in ipairs(keys) do
      keys[i] = base .. PAGE .. page
    end
    redis.call('DEL', unpack(keys))
    redis.call('ZREMRANGEBYRANK', base .. PAGES, 0, FORGOTTEN - 1)
  end
  return #keys < FORGOTTEN
end
