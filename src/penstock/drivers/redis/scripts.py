"""What Redis does in one step: Lua scripts, each atomic, so that nothing is half done.

Every script takes its arguments as one MessagePack value; the bodies of letters follow, one by one,
because this MessagePack has no bytes. Entry ids are text `ms-seq`. A delivery
is ours while the pending list names our consumer and the count of deliveries we were told.
"""

from typing import Final

from penstock.drivers.redis.keeping import ENSURE

_MINE: Final = """
local function mine(stream, group, consumer, id, attempt)
  local row = redis.call('XPENDING', stream, group, id, id, 1)[1]
  if not row then return 'gone' end
  if row[2] ~= consumer or row[4] ~= attempt then return 'it was handed out again' end
  return nil
end
"""

_SETTING: Final = """
local function setting(a, name)
  local said = redis.call('HGET', a.policies, a.group)
  local value = said and cjson.decode(said)[name]
  if value then return value end
  return said and a.usual or a.here
end
"""
"""What a subscription's policy says now; of a group without one, what the consumer says."""

_LEASE: Final = (
    _SETTING
    + """
local function lease_ms(a)
  return math.max(1, math.floor(setting(a, 'lease_s') * 1000))
end
"""
)

_STORE: Final = """
local function store(stream, letter, body, seconds)
  if letter.seen ~= '' then
    local known = redis.call('GET', letter.seen)
    if known then return {known, 1} end
  end
  local id = redis.call('XADD', stream, '*', 'body', body, unpack(letter.fields))
  if letter.seen ~= '' then redis.call('SET', letter.seen, id, 'EX', seconds) end
  return {id, 0}
end
"""

SEND_ONE: Final = (
    """
local stream, sender, seen, epoch = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local sequence = tonumber(ARGV[5])
if sender ~= '' then
  local known = redis.call('GET', sender)
  if known then
    local theirs, last, id = string.match(known, '^(%d+):(%d+):(.*)$')
    if tonumber(theirs) > epoch then return redis.error_reply('FENCED ' .. theirs) end
    if tonumber(theirs) == epoch and sequence <= tonumber(last) then
      if sequence < tonumber(last) then id = '' end
      return {{id, 2}}
    end
  end
end
local id, state = false, 1
if seen ~= '' then id = redis.call('GET', seen) end
if not id then
  id, state = redis.call('XADD', stream, 'NOMKSTREAM', '*', unpack(ARGV, 8)), 0
  if not id then
"""
    + ENSURE
    + """
    ensure(stream)
    id = redis.call('XADD', stream, '*', unpack(ARGV, 8))
  end
  if seen ~= '' then redis.call('SET', seen, id, 'EX', ARGV[6]) end
end
if sender ~= '' then
  redis.call('SET', sender, ARGV[4] .. ':' .. ARGV[5] .. ':' .. id, 'EX', ARGV[7])
end
return {{id, state}}
"""
)
"""The same as SEND for one letter, whose arguments come one by one: half the time at the server."""

SEND: Final = (
    ENSURE
    + _STORE
    + """
local a = cmsgpack.unpack(ARGV[1])
local last, place = -1, ''
if a.sender ~= '' then
  local known = redis.call('GET', a.sender)
  if known then
    local epoch, sequence, id = string.match(known, '^(%d+):(%d+):(.*)$')
    if tonumber(epoch) > a.epoch then return redis.error_reply('FENCED ' .. epoch) end
    if tonumber(epoch) == a.epoch then last, place = tonumber(sequence), id end
  end
end
ensure(a.stream)
local out = {}
for n, letter in ipairs(a.letters) do
  if a.sender ~= '' and letter.sequence <= last then
    local id = ''
    if letter.sequence == last then id = place end
    out[n] = {id, 2}
  else
    out[n] = store(a.stream, letter, ARGV[n + 1], a.seconds)
    if a.sender ~= '' then last, place = letter.sequence, out[n][1] end
  end
end
if a.sender ~= '' then
  redis.call('SET', a.sender, string.format('%d:%d:%s', a.epoch, last, place), 'EX', a.idle)
end
return out
"""
)
"""Stores letters: [[id, 0 = stored, 1 = known id, 2 = this very publish came before]]."""

CLAIM: Final = (
    _LEASE
    + """
local a = cmsgpack.unpack(ARGV[1])
local out, lease = {}, lease_ms(a)
local rows = redis.call('XPENDING', a.stream, a.group, 'IDLE', lease, '-', '+', a.count)
for _, row in ipairs(rows) do
  local got = redis.call('XCLAIM', a.stream, a.group, a.consumer, lease, row[1])
  if got[1] then out[#out + 1] = {row[1], row[4] + 1, got[1][2]} end
end
return out
"""
)
"""Takes over what nobody settled or renewed within its lease: [[id, attempt, fields]]."""

SETTLE: Final = (
    _MINE
    + """
local a = cmsgpack.unpack(ARGV[1])
local refused, ours, known = {}, {}, {}
local count = #a.letters
if count > 1 then  -- most are side by side: one look instead of one for each
  local rows = redis.call('XPENDING', a.stream, a.group, a.letters[1][1], a.letters[count][1],
                          2 * count, a.consumer)
  for _, row in ipairs(rows) do known[row[1]] = row[4] end
end
for n, each in ipairs(a.letters) do
  local why = nil
  if known[each[1]] ~= each[2] then
    why = mine(a.stream, a.group, a.consumer, each[1], each[2])
  end
  if why then
    refused[#refused + 1] = {n - 1, why}
  else
    ours[#ours + 1] = each[1]
    if #ours == 1000 then
      redis.call('XACK', a.stream, a.group, unpack(ours))
      ours = {}
    end
  end
end
if ours[1] then redis.call('XACK', a.stream, a.group, unpack(ours)) end
return refused
"""
)
"""Finishes deliveries that are still ours: [[index, why]] of those that are not."""

RELEASE: Final = (
    _LEASE
    + _MINE
    + """
local a = cmsgpack.unpack(ARGV[1])
local refused, lease = {}, lease_ms(a)
for n, each in ipairs(a.letters) do
  local id, attempt, delay, count = unpack(each)
  local why = mine(a.stream, a.group, a.consumer, id, attempt)
  if why then
    refused[#refused + 1] = {n - 1, why}
  else
    redis.call('XCLAIM', a.stream, a.group, a.nobody, 0, id, 'IDLE', math.max(0, lease - delay),
               'RETRYCOUNT', count, 'JUSTID')
  end
end
return refused
"""
)
"""Gives deliveries back: nobody's, and so long idle that they are free after their delay."""

RENEW: Final = (
    _MINE
    + """
local a = cmsgpack.unpack(ARGV[1])
for _, each in ipairs(a.letters) do
  if not mine(a.stream, a.group, a.consumer, each[1], each[2]) then
    redis.call('XCLAIM', a.stream, a.group, a.consumer, 0, each[1], 'IDLE', 0,
               'RETRYCOUNT', each[2], 'JUSTID')
  end
end
return 1
"""
)
"""A whole lease from now on, for the deliveries that are still ours."""

BURY: Final = (
    ENSURE
    + _SETTING
    + _MINE
    + """
local a = cmsgpack.unpack(ARGV[1])
local size = redis.call('MEMORY', 'USAGE', a.dead, 'SAMPLES', 5) or 0
if size > setting(a, 'dead_bytes_max') then return redis.error_reply('DEADFULL ' .. size) end
local refused = {}
for n, each in ipairs(a.letters) do
  local why = mine(a.stream, a.group, a.consumer, each.id, each.attempt)
  if why then
    refused[#refused + 1] = {n - 1, why}
  else
    ensure(a.dead)
    redis.call('XADD', a.dead, '*', 'body', ARGV[n + 1], unpack(each.fields))
    redis.call('XACK', a.stream, a.group, each.id)
  end
end
return refused
"""
)
"""Moves deliveries to the dead letters, both halves at once."""

LEAVE: Final = (
    _LEASE
    + """
local a = cmsgpack.unpack(ARGV[1])
if redis.call('EXISTS', a.stream) == 0 then return 0 end
if a.is_ephemeral then return redis.call('XGROUP', 'DESTROY', a.stream, a.group) end
local lease = lease_ms(a)
while true do
  local rows = redis.call('XPENDING', a.stream, a.group, '-', '+', 500, a.consumer)
  if not rows[1] then break end
  for _, row in ipairs(rows) do
    redis.call('XCLAIM', a.stream, a.group, a.nobody, 0, row[1], 'IDLE', lease,
               'RETRYCOUNT', row[4] - 1, 'JUSTID')
    if #redis.call('XPENDING', a.stream, a.group, row[1], row[1], 1, a.consumer) > 0 then
      redis.call('XACK', a.stream, a.group, row[1])
    end
  end
end
return redis.call('XGROUP', 'DELCONSUMER', a.stream, a.group, a.consumer)
"""
)
"""A consumer leaves; what it still has in the pending list never reached the application."""

UNIT: Final = (
    ENSURE
    + _MINE
    + _STORE
    + """
local a = cmsgpack.unpack(ARGV[1])
local known = redis.call('GET', a.unit)
if known then
  local epoch, sequence, answer = string.match(known, '^(%d+):(%d+):(.*)$')
  if tonumber(epoch) > a.epoch then return redis.error_reply('FENCED ' .. epoch) end
  if tonumber(epoch) == a.epoch and tonumber(sequence) >= a.sequence then
    if tonumber(sequence) == a.sequence then return answer end
    return redis.error_reply('FENCED ' .. sequence)
  end
end
local refused = {}
for n, ack in ipairs(a.acks) do
  for m, each in ipairs(ack.letters) do
    local why = mine(ack.stream, ack.group, ack.consumer, each[1], each[2])
    if why then refused[#refused + 1] = {n - 1, m - 1, why} end
  end
end
if refused[1] then return {refused} end
local out, at = {}, 1
for n, part in ipairs(a.parts) do
  ensure(part.stream)
  out[n] = {}
  for m, letter in ipairs(part.letters) do
    at = at + 1
    out[n][m] = store(part.stream, letter, ARGV[at], a.seconds)
  end
end
for _, ack in ipairs(a.acks) do
  for _, each in ipairs(ack.letters) do redis.call('XACK', ack.stream, ack.group, each[1]) end
end
local answer = cjson.encode(out)
redis.call('SET', a.unit, string.format('%d:%d:%s', a.epoch, a.sequence, answer), 'EX', a.idle)
return answer
"""
)
"""Publishes and acks as one: JSON of the places, or [[[ack, letter, why]]] when refused."""

LAST: Final = """
local a = cmsgpack.unpack(ARGV[1])
local last, count, size, start = '', 0, 0, a.start
while true do
  local rows = redis.call('XRANGE', a.stream, start, '+', 'COUNT', 1000)
  for _, row in ipairs(rows) do
    for _, value in ipairs(row[2]) do size = size + #value end
    if count > 0 and a.bytes > 0 and size > a.bytes then return last end
    last, count = row[1], count + 1
    if a.messages > 0 and count >= a.messages then return last end
  end
  if #rows < 1000 then return last end
  start = '(' .. last
end
"""
"""The id of the last entry of a range that begins at `start` and keeps both limits."""
