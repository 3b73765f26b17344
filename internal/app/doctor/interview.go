package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/operate"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

const (
	// fullBatch is the contract's bound of ids in a Confirm call.
	fullBatch = 500
	// longestID is the contract's bound of an id's length.
	longestID = 128
)

// interview examines a producer.
type interview struct {
	api     pb.ProducerServiceClient
	name    string
	to      halfmsg.Target
	timeout time.Duration
	// streams lead to the producer where it attends.
	streams *streams
	// settled is an id that cannot exist and that the producer has decided as ROLLED_BACK; empty: there is none.
	settled string
	// agreed are the verdicts that the producer has repeated.
	agreed map[string]pb.Verdict
}

// askProducer makes a Confirm call and returns the verdicts and the duration.
func (i *interview) askProducer(
	ctx context.Context,
	final bool,
	ids ...string,
) (map[string][]pb.Verdict, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, i.timeout)
	defer cancel()
	asked := time.Now()
	answer, err := i.api.Confirm(ctx, &pb.ConfirmRequest{Producer: i.name, Ids: ids, Final: final})
	said := map[string][]pb.Verdict{}
	for _, c := range answer.GetConfirmations() {
		said[c.GetId()] = append(said[c.GetId()], c.GetVerdict())
	}
	return said, time.Since(asked), err
}

// verdict asks about an id. A missing or invalid answer counts as UNKNOWN.
func (i *interview) verdict(ctx context.Context, final bool, id string) (pb.Verdict, error) {
	said, _, err := i.askProducer(ctx, final, id)
	if err != nil || len(said[id]) != 1 {
		return pb.Verdict_VERDICT_UNKNOWN, err
	}
	return said[id][0], nil
}

func (i *interview) drop(ctx context.Context, ids ...string) error {
	ctx, cancel := context.WithTimeout(ctx, i.timeout)
	defer cancel()
	_, err := i.api.DeleteBusiness(ctx, &pb.DeleteBusinessRequest{Producer: i.name, Ids: ids})
	return err
}

// fails reports a Confirm call that failed.
func (r *report) fails(question string, err error) {
	r.trouble("producer-fails", question+": "+said(err),
		"no answer is no verdict: its messages wait, and are asked about again",
		"answer every question of the contract; an id that is not known is UNKNOWN, not an error")
}

func said(err error) string {
	st := status.Convert(err)
	return fmt.Sprintf("%s: %q", st.Code(), st.Message())
}

// batch asks as many ids at once as the contract allows.
func (i *interview) batch(ctx context.Context, r *report) string {
	ids := make([]string, fullBatch)
	for n := range ids {
		ids[n] = unknowable()
	}
	verdicts, took, err := i.askProducer(ctx, false, ids...)
	if err != nil {
		r.fails(fmt.Sprintf("a question about %d ids", fullBatch), err)
		return ""
	}
	r.took(took, i.timeout)
	r.complete(ids, verdicts)
	return fmt.Sprintf("answers about %d ids in %s", fullBatch, operate.Duration(took))
}

// complete demands exactly the verdicts UNKNOWN for ids that cannot exist.
func (r *report) complete(ids []string, said map[string][]pb.Verdict) {
	left, twice := 0, 0
	for _, id := range ids {
		verdicts := said[id]
		delete(said, id)
		switch {
		case len(verdicts) == 0:
			left++
		case len(verdicts) > 1:
			twice++
		default:
			r.invented(verdicts[0], id)
		}
	}
	if left > 0 {
		r.warn("producer-leaves-out", fmt.Sprintf("says nothing of %d of %d ids", left, len(ids)),
			"they count as UNKNOWN, and are asked about again", "give one verdict for each id of the question")
	}
	if twice > 0 || len(said) > 0 {
		r.warn("producer-confuses",
			fmt.Sprintf("gives several verdicts for %d ids, and verdicts for %d that it was not asked about", twice, len(said)),
			"verdicts that contradict each other count as UNKNOWN", "give one verdict for each id of the question")
	}
}

// invented judges a verdict about an id that cannot exist, and reports each kind once.
func (r *report) invented(verdict pb.Verdict, id string) {
	if len(r.all) > 0 {
		return
	}
	switch verdict {
	case pb.Verdict_VERDICT_UNKNOWN:
	case pb.Verdict_VERDICT_COMMITTED:
		r.verdict(halfmsg.VerdictCommitted, id)
	case pb.Verdict_VERDICT_ROLLED_BACK:
		r.verdict(halfmsg.VerdictRolledBack, id)
	case pb.Verdict_VERDICT_UNAVAILABLE:
		r.verdict(halfmsg.VerdictUnavailable, id)
	default:
		r.warn("producer-confuses", fmt.Sprintf("says %d, which is no verdict", verdict), "it counts as UNKNOWN",
			"answer one of msghandler.v1.Verdict")
	}
}

// longest makes an id that no producer can know, as long as the contract allows, of all characters that it allows.
func longest() string {
	id := unknowable()
	return id + strings.Repeat("a.B_1:~-", longestID/8)[:longestID-len(id)]
}

// odd tries valid but unusual requests: the same id twice, the longest id, no id.
func (i *interview) odd(ctx context.Context, r *report) string {
	twice := unknowable()
	for _, ids := range [][]string{{twice, twice}, {longest()}} {
		said, _, err := i.askProducer(ctx, false, ids...)
		if err != nil {
			r.fails(fmt.Sprintf("a question about %q", ids), err)
		}
		for _, v := range said[ids[0]] {
			r.invented(v, ids[0])
		}
	}
	if said, _, err := i.askProducer(ctx, false); !harmless(err) {
		r.fails("an empty question", err)
	} else {
		r.complete(nil, said)
	}
	return "takes the longest id, one id twice, and an empty question"
}

// harmless says whether an empty request was answered, or refused as invalid.
func harmless(err error) bool { return err == nil || status.Code(err) == codes.InvalidArgument }

// known asks twice about committed ids.
func (i *interview) known(committed []string) func(context.Context, *report) string {
	return func(ctx context.Context, r *report) string {
		for _, id := range append(committed, committed...) {
			switch verdict, err := i.verdict(ctx, false, id); {
			case err != nil:
				r.fails("a question about "+id, err)
			case verdict != pb.Verdict_VERDICT_COMMITTED:
				delete(i.agreed, id)
				r.trouble("producer-denies", fmt.Sprintf("says %s of %s, which has committed", plain(verdict), id),
					"its message is not published",
					"leave the marker in the business's own transaction, and keep it until DeleteBusiness")
			default:
				i.agreed[id] = verdict
			}
		}
		return aboutSome(committed, "says COMMITTED of %d ids that have, each time it is asked")
	}
}

// plain is a verdict's name in the contract's words.
func plain(v pb.Verdict) string { return strings.TrimPrefix(v.String(), "VERDICT_") }

// final asks a final question, and whether the producer stands by its answer.
func (i *interview) final(ctx context.Context, r *report) string {
	id := longest()
	verdict, err := i.verdict(ctx, true, id)
	switch {
	case err != nil:
		r.fails("a final question", err)
		return ""
	case verdict == pb.Verdict_VERDICT_COMMITTED:
		r.verdict(halfmsg.VerdictCommitted, id)
		return ""
	case verdict != pb.Verdict_VERDICT_ROLLED_BACK:
		r.warn("producer-undecided", "does not decide a final question about an id that it does not know",
			"a message whose business never committed ends ABANDONED, and waits for a person",
			"keep markers in the business's own database (producer/marker/sql), which plants a tombstone")
		return ""
	}
	for _, final := range []bool{false, true, false} {
		again, err := i.verdict(ctx, final, id)
		if err == nil && again == pb.Verdict_VERDICT_ROLLED_BACK {
			continue
		}
		heard := plain(again)
		if err != nil {
			heard = said(err)
		}
		r.trouble(
			"producer-wavers",
			fmt.Sprintf("says ROLLED_BACK to a final question, and %s when it is asked again", heard),
			"nothing keeps a business that is still running from committing after its message was removed",
			"plant a tombstone under the id's unique key before answering ROLLED_BACK to a final question, commit the "+
				"tombstone, and read it from the primary database",
		)
		return ""
	}
	i.settled, i.agreed[id] = id, pb.Verdict_VERDICT_ROLLED_BACK
	return "answers ROLLED_BACK to a final question about an id that it does not know, and stands by it"
}

// deletions calls DeleteBusiness for missing markers: many, the same again, and none.
func (i *interview) deletions(ctx context.Context, r *report) string {
	ids := make([]string, fullBatch)
	for n := range ids {
		ids[n] = unknowable()
	}
	asked := time.Now()
	for range 2 {
		if err := i.drop(ctx, ids...); err != nil {
			r.keepsMarkers(fmt.Errorf("DeleteBusiness of %d ids: %s", len(ids), said(err)))
			return ""
		}
	}
	if err := i.drop(ctx); !harmless(err) {
		r.keepsMarkers(fmt.Errorf("DeleteBusiness of nothing: %s", said(err)))
	}
	if verdict, err := i.verdict(ctx, false, ids[0]); err == nil && verdict == pb.Verdict_VERDICT_COMMITTED {
		r.verdict(halfmsg.VerdictCommitted, ids[0])
	}
	r.took(time.Since(asked), 2*i.timeout)
	return fmt.Sprintf("deletes the markers of %d ids, and again", len(ids))
}
