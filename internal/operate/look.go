package operate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

const (
	// defaultPage is how many letters a page has where the request does not say.
	defaultPage = 100
	// maxPageBytes bounds a page: the headers of letters are of any size.
	maxPageBytes = 8 << 20
)

// look bounds a look at the letters of a queue.
type look struct {
	bounds bounds
	looked int
	ends   time.Time
}

func (q *queue) newLook() *look { return &look{bounds: q.bounds, ends: time.Now().Add(q.bounds.look)} }

// next counts a letter, and says why to stop before it; empty: go on.
func (l *look) next() string {
	switch {
	case l.looked >= l.bounds.looked:
		return fmt.Sprintf("A coordinator looks at the oldest %d dead letters of a queue. msghandler dlq --direct "+
			"reaches the others.", l.bounds.looked)
	case time.Now().After(l.ends):
		return fmt.Sprintf("The look ended after %s and %d dead letters.", l.bounds.look, l.looked)
	}
	l.looked++
	return ""
}

// List gives a page of letters, the oldest first. Its token is the number of letters before the page.
func (d *Desk) List(
	ctx context.Context, r *adminv1.ListDeadLettersRequest,
) (*adminv1.ListDeadLettersResponse, error) {
	q, ctx, done, err := d.takeTurn(ctx, r.GetQueue(), rankOfLook(ctx))
	if err != nil {
		return nil, err
	}
	defer done()
	match, look, page := matcher(nil, r.GetFilter()), q.newLook(), &adminv1.ListDeadLettersResponse{}
	after, _ := strconv.Atoi(r.GetPageToken()) // the token is one of ours, or empty
	size, next, left := defaultPage, 0, maxPageBytes
	if r.GetPageSize() > 0 {
		size = int(r.GetPageSize())
	}
	var oldest time.Time
	err = q.letters().Visit(ctx, func(l *consumer.Letter) bool {
		oldest = earlier(oldest, l.Since())
		if len(page.GetLetters()) == size || left <= 0 {
			next = look.looked
			return false
		}
		if page.Note = look.next(); page.GetNote() != "" {
			if look.looked < q.bounds.looked && look.looked > after {
				next = look.looked
			}
			return false
		}
		if look.looked > after && match(l) {
			letter := letterOf(l)
			page.Letters, left = append(page.Letters, letter), left-proto.Size(letter)
		}
		return true
	})
	if err != nil {
		return nil, q.unreachable(ctx, err)
	}
	q.setOldest(oldest)
	if next > 0 {
		page.NextPageToken = strconv.Itoa(next)
	}
	return page, nil
}

// count32 is a count of a letter, which may be foreign, within the bounds of the API.
func count32(n int) int32 { return int32(min(max(n, 0), maxCount)) }

// letterOf is a letter as answers have it.
func letterOf(l *consumer.Letter) *adminv1.DeadLetter {
	headers := make(map[string]string, len(l.Headers))
	for name, value := range l.Headers {
		headers[clean(name)] = clean(value)
	}
	return &adminv1.DeadLetter{
		Producer: clean(l.Producer), Consumer: clean(l.Queue), Reason: clean(l.Reason), FirstCause: clean(l.FirstCause),
		SinceTime: moment(l.Since()), Retries: count32(l.Retries), Attempt: count32(l.Attempt),
		Message: &msghandlerv1.Message{
			Id: clean(l.ID), Exchange: clean(l.Exchange), RoutingKey: clean(l.RoutingKey), ContentType: clean(l.ContentType),
			Headers: headers, Body: l.Body,
		},
	}
}

// maxCount bounds the counts of an answer, which a letter holds as text.
const maxCount = 1<<31 - 1

// Get gives the oldest letter with a name.
func (d *Desk) Get(
	ctx context.Context, r *adminv1.GetDeadLetterRequest,
) (*adminv1.GetDeadLetterResponse, error) {
	q, ctx, done, err := d.takeTurn(ctx, r.GetQueue(), rankOfLook(ctx))
	if err != nil {
		return nil, err
	}
	defer done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	name := &adminv1.MessageName{Producer: r.GetProducer(), Id: r.GetId()}
	found, err := q.letters().ListSelected(ctx, consumer.Selection{
		Limit: 1, Match: q.matchBounded(matcher([]*adminv1.MessageName{name}, nil), cancel),
	})
	letter := name.GetProducer() + "/" + name.GetId()
	switch {
	case len(found) > 0:
		return &adminv1.GetDeadLetterResponse{Letter: letterOf(&found[0])}, nil
	case err == nil:
		return nil, refused(halfmsg.ErrNoDeadLetter, nil, "The queue %s has no dead letter %s. An operator replayed or "+
			"discarded the dead letter, or another client holds it at this moment.", q.Name, letter)
	case errors.Is(err, context.Canceled) && context.Cause(ctx) != errYielded: //nolint:errorlint // the cause itself
		return nil, refused(halfmsg.ErrNoDeadLetter, nil, "The oldest %d dead letters of %s have none named %s: a "+
			"coordinator looks no further. Use msghandler dlq show %s --direct --queue %s.",
			q.bounds.looked, q.Name, letter, letter, q.Name)
	}
	return nil, q.unreachable(ctx, err)
}

// Count counts letters by group, and by where a replay would publish them.
func (d *Desk) Count(
	ctx context.Context, r *adminv1.CountDeadLettersRequest,
) (*adminv1.CountDeadLettersResponse, error) {
	q, ctx, done, err := d.takeTurn(ctx, r.GetQueue(), rankOfLook(ctx))
	if err != nil {
		return nil, err
	}
	defer done()
	match, look := matcher(r.GetSelection().GetNames(), r.GetSelection().GetFilter()), q.newLook()
	counted, by, to := &adminv1.CountDeadLettersResponse{}, groups{}, destinations{}
	err = q.letters().Visit(ctx, func(l *consumer.Letter) bool {
		if look.next() != "" {
			counted.More = true
			return false
		}
		if match(l) {
			counted.Count++
			by.add(l)
			to.add(l, q.MayPublish.check(l))
		}
		return true
	})
	if err != nil {
		return nil, q.unreachable(ctx, err)
	}
	var oldest time.Time
	counted.Groups, oldest = by.all()
	counted.Destinations, counted.OldestTime = to.all(), moment(oldest)
	return counted, nil
}
