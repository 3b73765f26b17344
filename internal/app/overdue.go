package app

import (
	"context"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

const (
	// overdueAge is the age from which a PENDING message may be overdue: producers are asked about younger messages.
	overdueAge = 10 * time.Minute
	// overduePage is how many messages are read at once, and overdueTime how long each pass reads.
	overduePage = 100
	overdueTime = 250 * time.Millisecond
)

// overdue reads the old PENDING messages, the oldest first, and finds the message that is overdue for the longest time.
// The age alone is not enough, since each message has its own confirm_after.
type overdue struct {
	list func(ctx context.Context, query halfmsg.Query) (halfmsg.Page, error)
	// inPart says that list leaves shards out, and result is the latest result.
	inPart func() bool
	result heldCounts[time.Duration]
	// cursor is where the next pass goes on, and longest is the longest time found so far.
	cursor  string
	longest time.Duration
}

// watchUndecided starts the loop that looks for overdue messages.
func (a *App) watchUndecided(store *redisstore.Store) error {
	u := &overdue{list: store.ListReachable, inPart: a.inPart}
	return a.repeat("undecided", backlogSchedule, func(ctx context.Context) error {
		longest, whole, err := u.pass(ctx)
		if whole {
			a.metrics.Overdue(longest)
		}
		return err
	})
}

// pass reads on for overdueTime. whole says that all messages have been read, and longest is then the result.
func (u *overdue) pass(ctx context.Context) (longest time.Duration, whole bool, err error) {
	for begun := time.Now(); time.Since(begun) < overdueTime; {
		page, err := u.list(ctx, halfmsg.Query{
			State: halfmsg.Pending, MinAge: overdueAge, Limit: overduePage, Cursor: u.cursor,
		})
		if err != nil {
			return 0, false, err
		}
		if u.cursor = page.Next; u.see(page.Records, time.Now()) || page.Next == "" {
			longest, u.cursor, u.longest = u.longest, "", 0
			return u.result.noteOne(longest, u.inPart()), true, nil
		}
	}
	return 0, false, nil
}

// see reads a page, and says whether all later messages are too young to be overdue for longer.
func (u *overdue) see(records []halfmsg.Record, now time.Time) (enough bool) {
	for i := range records {
		age := now.Sub(records[i].CreatedAt)
		if age <= u.longest {
			return true
		}
		u.longest = max(u.longest, age-records[i].ConfirmAfter)
	}
	return false
}
