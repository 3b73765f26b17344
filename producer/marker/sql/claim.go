package sql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/msghandler/msghandler/internal/ground/sqldb"
	"github.com/msghandler/msghandler/producer"
)

// ClaimRequest says which messages a claim takes.
type ClaimRequest struct {
	// Owner names the relay.
	Owner string
	// Limit is the most messages.
	Limit int
	// Bytes ends the claim: the message that reaches this length of all content is the last. 0: no limit.
	Bytes int64
	// Lock is how long the claim lasts. A long message that is claimed alone makes the lock longer; see Claim.Lock.
	Lock time.Duration
	// Broker is the broker that claimed messages name, for an Outbox. Empty: the messages that name none.
	Broker string
}

// Claim is a batch of messages that a relay holds for the time of its lock. Store.Load reads their content.
type Claim struct {
	// Token is the key for Load and Release. Once the lock has ended and another relay has claimed a message, neither
	// reads or changes the message.
	Token    string
	Messages []Claimed
	// Lock is how long the claim lasts: that of the request, and for a single message the time that long content takes on
	// a slow connection.
	Lock time.Duration
	// More: the claim has reached its limit of messages or bytes, so more messages may be due.
	More bool
}

// Claimed is a message that a claim holds, without its content.
type Claimed struct {
	ID string
	// Shard is the message's shard.
	Shard int
	// Bytes is the length of the message's content, as far as Load reads it.
	Bytes int64
}

// Queued is a message of the table, with its place there.
type Queued struct {
	// Producer is the producer of the message.
	Producer string
	Message  producer.Message
	// Shard is the message's shard.
	Shard int
	// Claims is how often the message was claimed, with this claim. Above 1 an earlier relay may have sent the message.
	Claims int
	// Attempts is how often the message was refused.
	Attempts int
	// Age is the time since the message was enqueued.
	Age time.Duration
	// Unreadable says why the row is not a message of this SDK; nil for every row that the SDK wrote.
	Unreadable error
}

// Claims go by id within a window of the messages that have been due longest: to order a whole backlog would make each
// claim as slow as the backlog is long. Ids that sort behind all new ones would starve in a backlog that lasts, so
// every fifth claim takes the messages of the window that have been due longest. The window is larger than a batch, so
// relays that claim at the same time find different messages.
const (
	windowOfBatches = 5
	longestDueTurn  = 5
)

// order is the order in which a claim takes the messages of its window.
type order string

const (
	byID         order = "id"
	byLongestDue order = "due_at"
)

// Claim locks and returns due messages that no relay holds: of each shard, messages that were never handed over first,
// then by id. Of more than five times the limit, the order by id is that of the messages that have been due longest.
// Claim is one short transaction that reads no content and waits for no other: rows that another relay is just claiming
// are skipped.
func (s *Store) Claim(ctx context.Context, request ClaimRequest) (Claim, error) {
	request.Bytes = either(request.Bytes, math.MaxInt64)
	claim := Claim{Token: request.Owner + "/" + rand.Text()[:10]}
	shards, turn, err := s.claimable(ctx)
	if err != nil {
		return Claim{}, fmt.Errorf("claim messages: %w", err)
	}
	err = s.table.Write(ctx, s.config.LockTimeout, func(tx sqldb.Execer) error {
		claim.Messages = nil
		t := &taking{ClaimRequest: request, token: claim.Token, order: turn}
		if err := s.becomeWriter(ctx, tx); err != nil {
			return err
		}
		for _, t.shard = range shards {
			for _, t.state = range []string{"{waiting}", "{handed}"} {
				taken, err := s.takeRows(ctx, tx, t)
				if err != nil {
					return err
				}
				claim.Messages = append(claim.Messages, taken...)
			}
		}
		claim.More, claim.Lock = t.spent(), request.Lock+slowLoad(claim.Messages, request.Lock)
		return s.lengthen(ctx, tx, claim, request.Lock)
	})
	if err != nil {
		return Claim{}, fmt.Errorf("claim messages: %w", err)
	}
	return claim, nil
}

// slowestLine is the connection in bytes a second on which content of any length is still loaded within its lock.
const slowestLine = 64 << 10

// slowLoad is how much longer the content of a message takes on the slowest line than a relay has for it anyway: a
// sixth of the lock. A relay halves a claim of several messages until it loads: with longer locks a relay that dies
// would hold all of them up.
func slowLoad(messages []Claimed, lock time.Duration) time.Duration {
	if len(messages) != 1 {
		return 0
	}
	seconds := min(float64(messages[0].Bytes)/slowestLine, longestLoad.Seconds())
	return max(0, time.Duration(seconds*float64(time.Second))-lock/6)
}

// longestLoad bounds what wrong lengths could do.
const longestLoad = 24 * time.Hour

// lengthen makes the locks of a claim longer, where they are longer than usual.
func (s *Store) lengthen(ctx context.Context, tx sqldb.Execer, claim Claim, usual time.Duration) error {
	if claim.Lock == usual {
		return nil
	}
	lock := claim.Lock.Milliseconds()
	for part := range slices.Chunk(idsOf(claim.Messages), maxInList) {
		list, args := s.inList(part)
		_, err := tx.ExecContext(ctx, s.table.Query(`UPDATE {table}{by_key} SET lock_until = {now} + ?, due_at = {now} + ?
			WHERE producer = ? AND id IN (`+list+`) AND owner = ?`),
			slices.Concat([]any{lock, lock, s.config.Producer}, args, []any{claim.Token})...)
		if err != nil {
			return err
		}
	}
	return nil
}

// becomeWriter begins to write in a database with one writer. Read first and written then, the transaction would fail
// when another wrote in between.
func (s *Store) becomeWriter(ctx context.Context, tx sqldb.Execer) error {
	if !s.table.OneWriter {
		return nil
	}
	_, err := tx.ExecContext(ctx, s.table.Query(`UPDATE {table} SET claims = claims WHERE 1 = 0`))
	return err
}

// taking is a claim on its way. Its Limit and Bytes are what is left of them.
type taking struct {
	ClaimRequest
	token string
	order order
	shard int
	state string
}

func (t *taking) spent() bool { return t.Limit <= 0 || t.Bytes <= 0 }

// cut returns the first of the messages, up to the limits.
func (t *taking) cut(found []Claimed) []Claimed {
	for i, c := range found {
		if t.spent() {
			return found[:i]
		}
		t.Limit--
		t.Bytes -= c.Bytes
	}
	return found
}

// due is the condition of messages that a relay may claim.
const due = `due_at <= {now} AND (lock_until IS NULL OR lock_until <= {now})`

// claimedBy are the changes of a claim; the parameters are the token, and twice the lock in milliseconds.
const claimedBy = `owner = ?, claims = claims + 1, lock_time = {now}, lock_until = {now} + ?, due_at = {now} + ?,
	updated_at = {now}`

// unlocked are the changes that end a claim.
const unlocked = `owner = NULL, lock_time = NULL, lock_until = NULL`

// dueIn finds the messages of a shard and a state that have been due longest. The claim's index covers the whole query.
// The parameters are the shard, the producer, those of the condition, and the number of messages.
func dueIn(state, condition string, by order) string {
	return `SELECT id FROM (SELECT id, due_at FROM {table} WHERE shard_id = ? AND producer = ? AND state = ` + state +
		condition + ` AND ` + due + ` ORDER BY due_at LIMIT ?) longest ORDER BY ` + string(by)
}

// takeRows locks messages.
func (s *Store) takeRows(ctx context.Context, tx sqldb.Execer, t *taking) (taken []Claimed, err error) {
	if t.spent() {
		return nil, nil
	}
	args := []any{t.shard, s.config.Producer}
	if s.form.ofBroker != "" {
		args = append(args, t.Broker)
	}
	found, err := s.ids(ctx, tx, dueIn(t.state, s.form.ofBroker, t.order), append(args, windowOfBatches*t.Limit)...)
	for err == nil && len(found) > 0 && !t.spent() {
		n := min(len(found), t.Limit, maxInList)
		var some []Claimed
		some, err = s.takeOf(ctx, tx, t, found[:n])
		taken, found = append(taken, some...), found[n:]
	}
	return taken, err
}

// takeOf locks those of the messages that no other relay is just claiming. The UPDATE repeats the conditions of the
// SELECT, so that no mistake elsewhere lets two relays hold a message.
func (s *Store) takeOf(ctx context.Context, tx sqldb.Execer, t *taking, found []string) ([]Claimed, error) {
	list, args := s.inList(found)
	free := ` WHERE producer = ? AND id IN (` + list + `) AND +shard_id = ? AND +state = ` + t.state + ` AND ` + due
	args = append(append([]any{s.config.Producer}, args...), t.shard)
	rows, err := tx.QueryContext(ctx, s.table.Query(
		`SELECT id, `+s.form.bytes+` FROM {table}{by_key}`+free+` ORDER BY id`+s.table.SkipLocked), args...)
	if err != nil {
		return nil, err
	}
	taken, err := scanClaimed(rows, t.shard)
	taken = t.cut(taken)
	if err != nil || len(taken) == 0 {
		return nil, err
	}
	list, args = s.inList(idsOf(taken))
	free = ` WHERE producer = ? AND id IN (` + list + `) AND +shard_id = ? AND +state = ` + t.state + ` AND ` + due
	lock := t.Lock.Milliseconds()
	args = append(append([]any{t.token, lock, lock, s.config.Producer}, args...), t.shard)
	result, err := tx.ExecContext(ctx, s.table.Query(`UPDATE {table}{by_key} SET `+claimedBy+free), args...)
	if err != nil {
		return nil, err
	}
	n, err := result.RowsAffected()
	if err == nil && n < int64(len(taken)) {
		s.config.Logger.WarnContext(ctx, "a claim locked fewer messages than it chose; the others wait for the next claim; "+
			"look for a trigger, or a program that changes the table",
			"table", s.config.Table, "shard", t.shard, "chosen", len(taken), "claimed", n)
	}
	return taken, err
}

func scanClaimed(rows *sql.Rows, shard int) (found []Claimed, err error) {
	defer rows.Close()
	for rows.Next() {
		c := Claimed{Shard: shard}
		var id []byte
		if err := rows.Scan(&id, &c.Bytes); err != nil {
			return nil, err
		}
		c.ID = string(id)
		found = append(found, c)
	}
	return found, rows.Err()
}

func idsOf(messages []Claimed) []string {
	ids := make([]string, len(messages))
	for i, c := range messages {
		ids[i] = c.ID
	}
	return ids
}

func (s *Store) ids(ctx context.Context, tx sqldb.Execer, query string, args ...any) ([]string, error) {
	rows, err := tx.QueryContext(ctx, s.table.Query(query), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ids []string
	for rows.Next() {
		var id []byte
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, string(id))
	}
	return ids, rows.Err()
}

// Load reads the content of messages that the claim still holds, outside the transaction of the claim: long content on
// a slow connection delays no claim. After an error Load returns what it has read.
func (s *Store) Load(ctx context.Context, token string, claimed []Claimed) (messages []Queued, err error) {
	byShard := map[int][]string{}
	for _, c := range claimed {
		byShard[c.Shard] = append(byShard[c.Shard], c.ID)
	}
	for _, shard := range slices.Sorted(maps.Keys(byShard)) {
		loaded, err := s.load(ctx, picked{shard, byShard[shard], "owner = ?", []any{token}})
		if messages = append(messages, loaded...); err != nil {
			return messages, fmt.Errorf("load messages: %w", err)
		}
	}
	return messages, nil
}

// picked are the messages of a shard that have one of the ids and meet a condition.
type picked struct {
	shard     int
	ids       []string
	condition string
	args      []any
}

// load returns messages in the order of their ids, and after an error what it has read.
func (s *Store) load(ctx context.Context, p picked) (messages []Queued, err error) {
	for part := range slices.Chunk(p.ids, maxInList) {
		list, named := s.inList(part)
		rows, err := s.db.QueryContext(ctx, s.table.Query(`SELECT id, claims, attempts, {now}, created_at,
			`+s.form.columns+` FROM {table}
			WHERE producer = ? AND id IN (`+list+`) AND shard_id = ? AND `+p.condition+` ORDER BY id`),
			slices.Concat([]any{s.config.Producer}, named, []any{p.shard}, p.args)...)
		if err != nil {
			return messages, err
		}
		if messages, err = s.scanMessages(rows, p.shard, messages); err != nil {
			return messages, err
		}
	}
	return messages, nil
}

// scanMessages appends the messages of load, and closes the rows.
func (s *Store) scanMessages(rows *sql.Rows, shard int, to []Queued) ([]Queued, error) {
	defer rows.Close()
	for rows.Next() {
		q := Queued{Producer: s.config.Producer, Shard: shard}
		content := s.form.content()
		var id []byte
		var now, created int64
		err := rows.Scan(append([]any{&id, &q.Claims, &q.Attempts, &now, &created}, content.fields()...)...)
		if err != nil {
			return to, err
		}
		q.Age = age(now, created)
		q.Message, q.Unreadable = content.unpack(string(id))
		to = append(to, q)
	}
	return to, rows.Err()
}

// DueAt is when the message became due to be sent, by the clock of this process: its delay after it was enqueued.
func (q *Queued) DueAt() time.Time { return time.Now().Add(q.Message.Delay - q.Age) }

// Name is PRODUCER/ID, as logs and commands name the message.
func (q *Queued) Name() string { return q.Producer + "/" + q.Message.ID }

// latest is the last time, in milliseconds since 1970, that is taken for the creation of a message: in the year 2286.
const latest = 9_999_999_999_999

// age is the time from the creation of a message to now, both in milliseconds since 1970. A time that an INSERT wrote
// into the row in another unit must not overflow, and must not fail the statement of a whole claim.
func age(now, created int64) time.Duration {
	return time.Duration(now-min(max(created, 0), latest)) * time.Millisecond
}
