package app

import (
	"context"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

const (
	// overdueAge is from what age on a PENDING message is looked at: younger ones are asked about as a rule.
	overdueAge = 10 * time.Minute
	// overduePage is how many messages are read at once, and undecidedTime how long one pass reads.
	overduePage = 100
	overdueTime = 250 * time.Millisecond
)

// overdue goes through the old PENDING messages, the oldest first, and finds the one that should have had its verdict
// longest ago. Its age alone does not say so: each message has a confirm_after of its own.
type overdue struct {
	list func(ctx context.Context, query halfmsg.Query) (halfmsg.Page, error)
	// cursor is where to go on, and longest what has been found up to there.
	cursor  string
	longest time.Duration
}

// watchUndecided starts the loop that looks for what should have been decided.
func (a *App) watchUndecided(store *redisstore.Store) error {
	u := &overdue{list: store.List}
	watch, err := a.newLoop("undecided", backlogSchedule, func(ctx context.Context) (bool, error) {
		longest, whole, err := u.pass(ctx)
		if whole {
			a.metrics.Overdue(longest)
		}
		return false, err
	})
	if err != nil {
		return err
	}
	watch.Start()
	return nil
}

// pass reads on for a while. whole says that all have been looked at, and longest is for how long the worst is overdue.
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
			return longest, true, nil
		}
	}
	return 0, false, nil
}

// see looks at a page, and says whether all that come after it are too young to be overdue for longer.
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
