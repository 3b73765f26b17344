package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/callback"
	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/halfmsg"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// strangersName is the name of no producer.
const strangersName = "msghandler-doctor"

// anotherName asks for another producer.
func (i *interview) anotherName(ctx context.Context, r *report) string {
	another := *i
	another.name = strangersName
	_, _, err := another.askProducer(ctx, false, unknowable())
	switch {
	case err == nil:
		r.warn("producer-answers-others", "answers a question for the producer "+strangersName,
			"a message with a wrong callback target gets the verdicts of a stranger",
			"refuse questions for another producer's name with FAILED_PRECONDITION")
	case status.Code(err) == codes.DeadlineExceeded:
		r.fails("a question for the producer "+strangersName, err)
	}
	return "refuses a question for another producer's name"
}

// aboutSome says what is well about a number of ids, and nothing where there are none.
func aboutSome(ids []string, text string) string {
	if len(ids) == 0 {
		return ""
	}
	return fmt.Sprintf(text, len(ids))
}

// running asks about transactions that have neither committed nor rolled back.
func (i *interview) running(ids []string) func(context.Context, *report) string {
	return func(ctx context.Context, r *report) string {
		for _, id := range ids {
			switch verdict, err := i.verdict(ctx, false, id); {
			case err != nil && status.Code(err) != codes.Unavailable:
				r.fails("a question about "+id, err)
			case verdict == pb.Verdict_VERDICT_COMMITTED, verdict == pb.Verdict_VERDICT_ROLLED_BACK:
				r.trouble("producer-premature", fmt.Sprintf("says %s of %s, whose transaction runs", plain(verdict), id),
					"the transaction may still end the other way, and then its message is false, or missing",
					"answer only what is committed in the primary database: no dirty read, and no marker outside the transaction")
			}
		}
		return aboutSome(ids, "decides none of %d running transactions")
	}
}

// rolledBack asks about messages that have been rolled back.
func (i *interview) rolledBack(ids []string) func(context.Context, *report) string {
	return func(ctx context.Context, r *report) string {
		for _, id := range ids {
			switch verdict, err := i.verdict(ctx, false, id); {
			case err != nil:
				r.fails("a question about "+id, err)
			case verdict == pb.Verdict_VERDICT_COMMITTED:
				r.verdict(halfmsg.Verdict(verdict), id)
			case verdict != pb.Verdict_VERDICT_ROLLED_BACK:
				r.forgets(fmt.Sprintf("says %s of %s, which was rolled back", plain(verdict), id))
			}
		}
		return aboutSome(ids, "says ROLLED_BACK of %d ids that were")
	}
}

// deleted asks about messages whose markers the coordinator has had deleted. A coordinator passes on no final question
// about a message of the business.
func (i *interview) deleted(ids []string) func(context.Context, *report) string {
	questions := []bool{false, true}
	if attends(i.to) {
		questions = questions[:1]
	}
	return func(ctx context.Context, r *report) string {
		for _, id := range ids {
			for _, final := range questions {
				verdict, err := i.verdict(ctx, final, id)
				if err != nil {
					r.fails("a question about "+id, err)
				} else if verdict != pb.Verdict_VERDICT_COMMITTED {
					r.forgets(fmt.Sprintf("says %s of %s, which has committed and whose marker was deleted", plain(verdict), id))
				}
				if verdict != pb.Verdict_VERDICT_COMMITTED {
					break // a final question would leave a tombstone for an id of the business
				}
			}
		}
		return aboutSome(ids, "says COMMITTED of %d ids whose markers were deleted")
	}
}

// forgets reports a marker that does not outlive DeleteBusiness.
func (r *report) forgets(what string) {
	r.warn("producer-forgets", what,
		"a coordinator that is slow, or whose Redis was rolled back, asks again, and hears something else",
		"mark the row as deleted in DeleteBusiness, and remove it after some days")
}

// similar asks about ids that differ little from a settled id, in one call.
func (i *interview) similar(ctx context.Context, r *report) string {
	if i.settled == "" {
		return ""
	}
	before, after := unknowable(), unknowable()
	lower, cut := strings.ToLower(i.settled), i.settled[:longestID-1]+"x"
	said, _, err := i.askProducer(ctx, false, before, lower, i.settled, cut, after)
	if err != nil {
		r.fails("a question about five ids", err)
		return ""
	}
	rolledBack := func(id string) bool { return slices.Contains(said[id], pb.Verdict_VERDICT_ROLLED_BACK) }
	switch {
	case rolledBack(before), rolledBack(after), rolledBack(lower) && !rolledBack(i.settled):
		r.trouble("producer-mixes-up", "gives the verdict about an id to another id of the same question",
			"messages are published whose business never happened, and others are lost",
			"name each verdict by the id of its row, not by its place in the question")
	case rolledBack(lower), rolledBack(cut):
		r.trouble("producer-confuses-ids", "takes ids for the same that differ in upper and lower case, or in the last of "+
			"128 characters", "a message gets the verdict of another one",
			"keep ids as they are, in a column of 128 bytes that compares bytes (PostgreSQL: bytea or COLLATE \"C\"; "+
				"MySQL: VARBINARY)")
	}
	return "keeps similar ids apart, and names each verdict by its id"
}

// freshConnections is how many connections are opened to reach several replicas.
const freshConnections = 4

// connections asks about ids with a known verdict on connections of their own, because a load balancer may lead each of
// them to another replica.
func (i *interview) connections(e *Examination) func(context.Context, *report) string {
	return func(ctx context.Context, r *report) string {
		if len(i.agreed) == 0 {
			return ""
		}
		for range freshConnections {
			if i.onFreshConnection(ctx, r, e); len(r.all) > 0 {
				return ""
			}
		}
		if attends(i.to) { // the replicas are asked in turn
			return fmt.Sprintf("says the same %d times, whichever replica is asked", freshConnections)
		}
		return fmt.Sprintf("says the same on %d connections", freshConnections)
	}
}

func (i *interview) onFreshConnection(ctx context.Context, r *report, e *Examination) {
	client := r.callbacks(e, i.streams)
	if client == nil {
		return
	}
	defer client.Close()
	api, release, err := client.Open(i.to)
	if err != nil {
		r.unreachable(err)
		return
	}
	defer release()
	fresh := *i
	fresh.api = api
	for id, before := range i.agreed {
		now, err := fresh.verdict(ctx, false, id)
		if err != nil {
			r.fails("a question about "+id+" on a new connection", err)
			return
		}
		if now != before {
			r.trouble("producer-disagrees", fmt.Sprintf("says %s of %s on a new connection, and %s before",
				plain(now), id, plain(before)), "replicas that answer from their own memory contradict each other",
				"answer from a database that all replicas share, read from its primary")
			return
		}
	}
}

// Questions that come at once: as many as a coordinator asks by default, each about so many ids.
const atOnce, idsAtOnce = 4, 50

// concurrent asks a question alone, and then several at once.
func (i *interview) concurrent(ctx context.Context, r *report) string {
	if _, err := i.aboutMany(ctx); err != nil {
		r.fails(fmt.Sprintf("a question about %d ids", idsAtOnce), err)
		return ""
	}
	var asking sync.WaitGroup
	var mu sync.Mutex
	var slowest time.Duration
	var failed error
	for range atOnce {
		asking.Go(func() {
			took, err := i.aboutMany(ctx)
			mu.Lock()
			defer mu.Unlock()
			slowest, failed = max(slowest, took), cmp.Or(failed, err)
		})
	}
	asking.Wait()
	if failed != nil {
		r.trouble("producer-serial", fmt.Sprintf("fails one of %d questions that come at once: %s", atOnce, said(failed)),
			"a coordinator asks several questions at once, and each failed one is asked again",
			"answer questions concurrently, without a lock around them, from a pool of database connections")
		return ""
	}
	r.took(slowest, i.timeout)
	return fmt.Sprintf("answers %d questions at once", atOnce)
}

// aboutMany asks about ids that cannot exist.
func (i *interview) aboutMany(ctx context.Context) (time.Duration, error) {
	ids := make([]string, idsAtOnce)
	for n := range ids {
		ids[n] = unknowable()
	}
	_, took, err := i.askProducer(ctx, false, ids...)
	return took, err
}

// kept asks about a settled id after DeleteBusiness.
func (i *interview) kept(ctx context.Context, r *report) string {
	if i.settled == "" {
		return ""
	}
	if err := i.drop(ctx, i.settled); err != nil {
		r.keepsMarkers(fmt.Errorf("DeleteBusiness of one id: %s", said(err)))
		return ""
	}
	switch verdict, err := i.verdict(ctx, false, i.settled); {
	case err != nil:
		r.fails("a question after DeleteBusiness", err)
	case verdict == pb.Verdict_VERDICT_COMMITTED:
		r.verdict(halfmsg.Verdict(verdict), i.settled)
	case verdict != pb.Verdict_VERDICT_ROLLED_BACK:
		r.forgets(fmt.Sprintf("says ROLLED_BACK of an id, and %s after DeleteBusiness", plain(verdict)))
	}
	return "says the same after DeleteBusiness"
}

// unavailable are the causes of a call that a producer answers with UNAVAILABLE.
var unavailable = []cause.Cause{cause.ProducerUnable, cause.ProducerGateway}

// databaseAway asks while the producer's database is away: only UNAVAILABLE, as a verdict or as the error of the call,
// costs the messages nothing.
func (i *interview) databaseAway(client *callback.Client) func(context.Context, *report) string {
	return func(ctx context.Context, r *report) string {
		for _, final := range []bool{false, true} {
			id := unknowable()
			verdicts, err := client.Confirm(ctx, i.to, []string{id}, final)
			var failed *callback.CallError
			answers := err != nil && slices.Contains(unavailable, cause.OfCall(err.Error()))
			switch verdict := pb.Verdict(verdicts[id]); {
			case errors.As(err, &failed) && failed.Code() == codes.Unavailable && !answers:
				r.unreachable(err)
				return ""
			case errors.As(err, &failed) && failed.Code() == codes.Unavailable:
			case err != nil:
				r.fails("a question without its database", err)
			case verdict == pb.Verdict_VERDICT_COMMITTED, verdict == pb.Verdict_VERDICT_ROLLED_BACK:
				r.trouble("producer-guesses", fmt.Sprintf("says %s of an id while its database is away", plain(verdict)),
					"an outage of the database loses messages, or publishes false ones",
					"answer UNAVAILABLE whenever the database cannot be asked")
			case verdict == pb.Verdict_VERDICT_UNKNOWN:
				r.warn("producer-blames", "says UNKNOWN while its database is away",
					"each UNKNOWN uses up an attempt: an outage of an hour ends in ABANDONED messages",
					"answer UNAVAILABLE whenever the database cannot be asked")
			}
		}
		return "says UNAVAILABLE while its database is away"
	}
}
