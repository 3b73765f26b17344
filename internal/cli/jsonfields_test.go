package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/msghandler/msghandler/internal/cli"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

// Programs read the documents of --output, so no field is removed or renamed, and none changes its type.
func TestJSONFieldsStay(t *testing.T) {
	t.Parallel()
	outputs := documents(t)
	page, err := os.ReadFile("../../docs/reference/cli-json.md")
	must.Succeed(t, err)
	for command, output := range outputs {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			got := fieldLines(t, output)
			path := filepath.Join("testdata", "fields", strings.ReplaceAll(command, " ", "-")+".txt")
			if *writeGolden {
				must.Succeed(t, os.WriteFile(path, []byte(strings.Join(got, "\n")+"\n"), 0o600))
			}
			frozen, err := os.ReadFile(path)
			must.Succeed(t, err)
			want := strings.Fields(strings.ReplaceAll(string(frozen), " ", "="))
			for _, line := range want {
				if field := strings.ReplaceAll(line, "=", " "); !slices.Contains(got, field) {
					t.Errorf("--output json lacks the field %q. Programs of users read the field: do not remove or rename it, "+
						"and keep its type. Add a new field beside it", field)
				}
			}
			for _, field := range got {
				if !slices.Contains(want, strings.ReplaceAll(field, " ", "=")) {
					t.Errorf("the field %q is new: run go test ./internal/cli -run TestJSONFieldsStay -golden, and describe "+
						"the field in docs/reference/cli-json.md", field)
				}
				name, _, _ := strings.Cut(strings.TrimPrefix(field, "messages[]."), " ") // list prints what show prints
				if !strings.Contains(string(page), "`"+name+"`") {
					t.Errorf("docs/reference/cli-json.md lacks `%s`", name)
				}
			}
		})
	}
}

func TestEachCommandWithDocumentsIsFrozen(t *testing.T) {
	t.Parallel()
	root, err := cli.Program.Root()
	must.Succeed(t, err)
	frozen := documents(t)
	for _, command := range commandsWithOutput(root) {
		// Whole documents of dlq are frozen in testdata/json.
		if frozen[command] == "" && !strings.HasPrefix(command, "dlq ") {
			t.Errorf("%s has --output, and TestJSONFieldsStay does not run the command", command)
		}
	}
}

func commandsWithOutput(n *kong.Node) (names []string) {
	for _, child := range n.Children {
		names = append(names, commandsWithOutput(child)...)
		if child.Leaf() && slices.ContainsFunc(child.Flags, func(f *kong.Flag) bool { return f.Name == "output" }) {
			names = append(names, strings.TrimPrefix(child.FullPath(), "msghandler "))
		}
	}
	return names
}

// documents runs each command and returns its JSON.
func documents(t *testing.T) map[string]string {
	t.Helper()
	c := wholeCoordinator(t)
	tokens := filepath.Join(t.TempDir(), "tokens")
	made := run(nil, "token", "new", "ci", "--file="+tokens, "--role=operator", "--producer=orders", "--expires=90d")
	if made.status != 0 {
		t.Fatal(made.err)
	}
	file := filepath.Join(t.TempDir(), "msghandler.yaml")
	must.Succeed(t, os.WriteFile(file, []byte("log: {level: debug}\n"), 0o600))
	out := map[string]string{}
	for command, args := range map[string]string{
		"stats": "stats", "list": "list", "show": "show stock/7", "retry": "retry --state=dead -n",
		"discard": "discard --state=dead -n", "audit": "audit", "problems": "problems", "config": "config --all",
		"config diff": "config --diff=" + file, "version": "version", "dlq queues": "dlq queues",
		"token list":      "token list --file=" + tokens,
		"doctor":          strings.Join(doctorOfEmbedded(t), " "),
		"verify-producer": "verify-producer orders 127.0.0.1:1", "tail": "tail --limit=1",
		"list group": "list --group --state=dead", "history": "history", "replay": "replay --exchange=shop -n",
	} {
		all := append(strings.Fields(args), "--output=json")
		if command != "version" && command != "token list" && command != "verify-producer" {
			all = append(all, "--server="+c.addr)
		}
		got := run(nil, all...)
		if got.out == "" {
			t.Fatalf("%s: %s", command, got.err)
		}
		out[command] = got.out
	}
	env, _ := writeContexts(t, "current: here\ncontexts: {here: {server: \"127.0.0.1:1\", token_file: t}}\n")
	out["context list"] = run(env, "context", "list", "--output=json").out
	return out
}

// wholeCoordinator is a coordinator whose answers have each field.
func wholeCoordinator(t *testing.T) *coordinator {
	t.Helper()
	c := &coordinator{queues: plantedQueues()}
	now := timestamppb.New(time.Now())
	for _, body := range []string{"text", "\xff"} {
		c.add(msghandlerv1.State_STATE_PENDING, "stock", fmt.Sprint(7+len(c.records)))
		r := c.records[len(c.records)-1]
		r.Message.Body, r.Message.Broker, r.Message.Delay = []byte(body), "events", durationpb.New(time.Minute)
		r.LastErrorTime, r.Parked = now, true
		r.UpdateTime, r.LeaseEndTime, r.LeaseOwner, r.CallbackTarget, r.DeleteAttempts = now, now, "a-1", "stock:9000", 1
		r.Events = []*adminv1.Event{
			{Kind: adminv1.EventKind_EVENT_KIND_SEND, FirstTime: now, LastTime: now, Count: 1, Actor: "a-1", Cause: "none"},
		}
	}
	c.findings = []*adminv1.Finding{{
		Name: "a", Severity: adminv1.Severity_SEVERITY_WARNING, What: "b", Why: "c", Remedy: "d",
		StartTime: now, EndTime: now, Coordinators: []string{"a-1"}, Count: 2, StartCount: 1,
		Subject: "rabbitmq", Follows: "e",
	}}
	c.fleet = []*adminv1.Coordinator{{Instance: "a-1", ConfigHash: "abc", StartTime: now, LastSeenTime: now}}
	c.brokers = []*adminv1.BrokerStats{{Name: "events", Kind: "nats", Problem: "away"}}
	c.sums = wholeSums(now)
	c.configuration = &adminv1.GetConfigurationResponse{
		Instance: "a-1", Version: "v1",
		Values: []*adminv1.ConfigurationValue{{Key: "log.level", Value: "info", Origin: "a.yaml:1"}},
	}
	c.audited = auditedCoordinator(t).audited
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	c.addr = listener.Addr().String()
	server := grpc.NewServer()
	adminv1.RegisterAdminServiceServer(server, tailing{c})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return c
}

// wholeSums are sums of all coordinators with each field.
func wholeSums(now *timestamppb.Timestamp) *adminv1.GetStatsResponse {
	took := durationpb.New(time.Second)
	return &adminv1.GetStatsResponse{
		Flow: &adminv1.FlowStats{CoordinatorCount: 1, LatencyP50: took, LatencyP99: took},
		Producers: []*adminv1.ProducerStats{{
			Name: "stock", LastAnswerTime: now, LastAnswerLatency: took, LastFailureTime: now, LastFailure: "away",
			LastVerdict: msghandlerv1.Verdict_VERDICT_COMMITTED,
		}},
		Exchanges: []*adminv1.ExchangeStats{{
			Broker: "events", Name: "shop", LastAcknowledgeTime: now, LastFailureTime: now, LastFailure: "away",
		}},
	}
}

func (c *coordinator) ListFinished(
	context.Context, *adminv1.ListFinishedRequest,
) (*adminv1.ListFinishedResponse, error) {
	now := timestamppb.Now()
	finished := func(body string) *adminv1.FinishedMessage {
		return &adminv1.FinishedMessage{
			Producer: "stock", Ending: adminv1.Ending_ENDING_DONE, FinishTime: now, CreateTime: now, CommitTime: now,
			Copies: 1, Entry: "1-0", Replayable: true, BodyOmitted: true, Damage: "cut",
			Message: &msghandlerv1.Message{
				Id: "7", Broker: "events", Exchange: "shop", RoutingKey: "paid", ContentType: "text/plain",
				Headers: map[string]string{"tenant": "eu"}, Body: []byte(body),
			},
		}
	}
	return &adminv1.ListFinishedResponse{
		FromArchive: true, ArchiveSize: 2, ArchiveOldestTime: now, ArchiveDropped: 1,
		Messages: []*adminv1.FinishedMessage{finished("text"), finished("\xff")},
	}, nil
}

func (c *coordinator) ReplayMessages(
	_ context.Context, r *adminv1.ReplayMessagesRequest,
) (*adminv1.ReplayMessagesResponse, error) {
	what := "replay"
	if r.GetDryRun() {
		what = "would replay"
	}
	f := r.GetSelection().GetFilter()
	of := f.GetProducer()
	if f.GetUntil().AsTime().After(time.Now()) {
		of += ", and of later messages"
	}
	err := c.note("%s %d of %s", what, r.GetLimit(), of)
	return &adminv1.ReplayMessagesResponse{Changed: 1, Skipped: 1}, err
}

// tailing is a coordinator that streams a move.
type tailing struct{ *coordinator }

func (tailing) TailMessages(
	_ *adminv1.TailMessagesRequest, stream grpc.ServerStreamingServer[adminv1.TailMessagesResponse],
) error {
	return stream.Send(&adminv1.TailMessagesResponse{
		Moves: []*adminv1.Move{{Producer: "orders", Id: "1", Time: timestamppb.Now()}},
	})
}

// fieldLines are the paths of the fields with their types, sorted.
func fieldLines(t *testing.T, documents string) (lines []string) {
	t.Helper()
	fields := map[string]bool{}
	decoder := json.NewDecoder(bytes.NewReader([]byte(documents)))
	for {
		var document any
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v: %s", err, documents)
		}
		enter(fields, "", document)
	}
	return slices.Sorted(maps.Keys(fields))
}

// enter adds the fields of a value. The names of headers are the user's.
func enter(fields map[string]bool, path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			if strings.HasSuffix(path, "headers") {
				name = "NAME"
			}
			enter(fields, strings.TrimPrefix(path+"."+name, "."), inner)
		}
	case []any:
		for _, inner := range v {
			enter(fields, path+"[]", inner)
		}
	case string:
		fields[path+" text"] = true
	case float64:
		fields[path+" number"] = true
	case bool:
		fields[path+" boolean"] = true
	}
}
