package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// wrongText is the usage error of a flag whose text cannot be read.
func wrongText(err error) error {
	if err == nil {
		return nil
	}
	return commandline.UsageError{Err: fmt.Errorf("--%w", err)}
}

// readFilter reads the flags of a filter.
func readFilter(t operate.MessageText) (*adminv1.MessageFilter, error) {
	filter, err := t.Filter()
	return filter, wrongText(err)
}

// statesOf are the states of a filter: the named state, or every state that keeps messages.
func statesOf(f *adminv1.MessageFilter) (states []msghandlerv1.State) {
	if f.GetState() != msghandlerv1.State_STATE_UNSPECIFIED {
		return append(states, f.GetState())
	}
	for _, state := range slices.Sorted(slices.Values(halfmsg.Unfinished())) {
		states = append(states, msghandlerv1.State(state))
	}
	return states
}

// maxPage is the largest page a coordinator gives.
const maxPage = 1000

// list reads up to limit messages that match, page by page, and says whether there may be more. A message may be on two
// pages when it moves meanwhile; it is given once.
func (a *admin) list(
	ctx context.Context, f *adminv1.MessageFilter, limit int, far *commandline.Progress,
) (records []*adminv1.MessageRecord, more bool, err error) {
	seen := map[string]bool{}
	request := &adminv1.ListMessagesRequest{Filter: f}
	for len(records) < limit {
		request.PageSize = int32(min(limit-len(records), maxPage)) //nolint:gosec // at most maxPage
		response, err := a.client.ListMessages(ctx, request)
		if err != nil {
			return nil, false, err
		}
		for _, r := range response.GetRecords() {
			if name := r.GetProducer() + "/" + r.GetMessage().GetId(); !seen[name] && len(records) < limit {
				seen[name] = true
				records = append(records, r)
			}
		}
		far.Update("found %d %s messages", len(records), stateName(f.GetState()))
		if request.PageToken = response.GetNextPageToken(); request.GetPageToken() == "" {
			return records, false, nil
		}
	}
	return records, true, nil
}

func parseNames(typed []string) ([]*adminv1.MessageName, error) {
	names := make([]*adminv1.MessageName, 0, len(typed))
	for _, s := range typed {
		n, err := halfmsg.ParseName(s)
		if err != nil {
			return nil, commandline.UsageError{Err: err}
		}
		names = append(names, &adminv1.MessageName{Producer: n.Producer, Id: n.ID})
	}
	return names, nil
}

// typedNames returns the typed names, or the names on standard input: a question on the terminal is impossible then, so
// the caller must be sure.
func typedNames(s *commandline.Session, typed []string, sure bool) ([]*adminv1.MessageName, error) {
	if !slices.Equal(typed, []string{"-"}) {
		return parseNames(typed)
	}
	names, err := readNames(s.In)
	if err == nil && !sure {
		return nil, commandline.UsageError{Err: fmt.Errorf("%d messages are named on standard input, "+
			"so no question is possible; add --yes when you are sure", len(names))}
	}
	return names, err
}

// readNames reads names, the first word of each line, so that what list prints can be handed on. Lines without a word,
// and the header of a table, are passed over.
func readNames(in io.Reader) ([]*adminv1.MessageName, error) {
	var words []string
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 0 && fields[0] != listHeader[0] {
			words = append(words, fields[0])
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read names from standard input: %w", err)
	}
	if len(words) == 0 {
		return nil, commandline.UsageError{
			Err: errors.New("there is no name on standard input; write a name a line, such as orders/1001"),
		}
	}
	return parseNames(words)
}
