package doctor_test

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/app/doctor"
	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker/memory"
	"github.com/msghandler/msghandler/proto/certs/certstest"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

func TestAHealthySiteHasNoFindings(t *testing.T) {
	t.Parallel()
	s := newSite(t, servers.RabbitMQ(t).URL)
	found := doctor.Examine(t.Context(), s.e)
	if names := complaints(t, found); len(names) > 0 {
		t.Errorf("about a good set-up the doctor says %+v", found)
	}
	well := 0
	for _, f := range found {
		if f.Severity == doctor.OK {
			well++
		}
	}
	if well != 5 {
		t.Errorf("%d parts are well: %+v", well, found)
	}
	if keys := s.redis.CLI("KEYS", "*"); strings.Contains(keys, "doctor") {
		t.Errorf("the doctor left something behind: %s", keys)
	}
}

// TestUserOfFewRightsIsEnough has the permissions of docs/reference/redis.md and of the finding redis-permission.
func TestUserOfFewRightsIsEnough(t *testing.T) {
	t.Parallel()
	redis := servers.Redis(t, "--appendfsync", "always")
	redis.CLI("ACL", "SETUSER", "msghandler", "on", ">pw", "~msghandler:*", "+@all", "-@dangerous", "+info", "+config|get")
	s := newSiteOn(t, servers.RabbitMQ(t).URL, redis, "redis://msghandler:pw@"+redis.Addr+"/0")
	if names := complaints(t, doctor.Examine(t.Context(), s.e)); len(names) > 0 {
		t.Errorf("about a user of few rights the doctor finds %q", names)
	}
	plantDead(s) // which takes a message most of the way
}

func TestMissingPermissionNamesPrefix(t *testing.T) {
	t.Parallel()
	s := newSite(t, servers.RabbitMQ(t).URL)
	plantFewRights(s)
	s.wantRemedy("redis-permission", "~msghandler:*")
}

// A managed Redis has no CONFIG; INFO still tells that it evicts.
func TestHiddenConfigHidesNoEviction(t *testing.T) {
	t.Parallel()
	redis := servers.Redis(t, "--appendfsync", "always", "--rename-command", "CONFIG", "hidden")
	s := newSiteOn(t, servers.RabbitMQ(t).URL, redis, redis.URL())
	redis.CLI("hidden", "SET", "maxmemory-policy", "allkeys-lru")
	found := doctor.Examine(t.Context(), s.e)
	unrevealed := slices.ContainsFunc(found, func(f doctor.Finding) bool { return f.Name == "redis-unrevealed" })
	if names := complaints(t, found); !slices.Contains(names, "redis-evicts") || !unrevealed {
		t.Errorf("the doctor finds %+v", found)
	}
}

// planted are the mistakes planted in a healthy set-up, by the name of the finding that must follow.
var planted = []struct {
	name  string
	plant func(s *site)
	// also holds the further findings that must follow.
	also []string
}{
	{name: "redis-evicts", plant: redisSetting("maxmemory-policy", "allkeys-lru")},
	{name: "redis-forgets", plant: redisSetting("appendonly", "no")},
	{name: "redis-unsynced", plant: redisSetting("appendfsync", "everysec")},
	{name: "redis-no-replicas", plant: redisSetting("min-replicas-to-write", "1")},
	{name: "redis-memory", plant: fillMemory(95)},
	{name: "redis-full", plant: fillMemory(99.9)},
	{name: "redis-disk", plant: plantFullDisk},
	{name: "redis-replica", plant: plantReplica},
	// With a password for all users, the coordinator's next connection would fail too.
	{name: "redis-login", plant: func(s *site) {
		s.redis.CLI("ACL", "SETUSER", "doctor", "on", ">pw", "~*", "+@all")
		s.e.Settings.Redis.URL = "redis://doctor:wrong@" + s.redis.Addr + "/0"
	}},
	{name: "redis-permission", plant: plantFewRights},
	{
		name:  "redis-away",
		plant: func(s *site) { s.e.Settings.Redis.URL = "redis://" + servers.Addresses(s.t, 1)[0] + "/0" },
	},
	{name: "redis-shards", plant: func(s *site) { s.e.Settings.Redis.Shards = 8 }},
	{name: "redis-layout", plant: func(s *site) { s.redis.CLI("HSET", "msghandler:meta", "layout", "99") }},
	{name: "redis-went-back", plant: func(s *site) { s.redis.CLI("SET", "msghandler:{00}:suspect", "1700000000000") }},
	{name: "redis-replicas-missing", plant: func(s *site) { s.e.Settings.Redis.MinReplicas = 1 }},
	{name: "redis-unsafe-allowed", plant: func(s *site) { s.e.Settings.Redis.AllowUnsafe = true }},
	{name: "rabbitmq-away", plant: func(s *site) {
		s.e.Settings.AMQP.URLs = []string{"amqp://guest:guest@" + servers.Addresses(s.t, 1)[0] + "/"}
	}},
	{name: "rabbitmq-login", plant: func(s *site) { plantLogin(s, url.UserPassword("guest", "wrong"), "") }},
	{name: "rabbitmq-vhost", plant: func(s *site) { plantLogin(s, url.UserPassword("guest", "guest"), "/nowhere") }},
	{name: "rabbitmq-handshake", plant: func(s *site) {
		s.e.Settings.AMQP.URLs = []string{"amqp://" + listening(s.t) + "/"}
	}},
	{name: "dead-letter-exchange", plant: func(s *site) { s.e.Settings.Send.DeadLetterExchange = "nowhere" }},
	{
		name:  "callbacks-open",
		plant: func(s *site) { s.e.Settings.Callbacks.Allow = []string{"127.0.0.1:*", "*:9000"} },
		also:  []string{"callbacks-networks-unset"},
	},
	{name: "callbacks-networks-unset", plant: func(s *site) {
		s.e.Settings.Callbacks.Allow = []string{"127.0.0.1:*", "*.orders.svc:9000"}
	}},
	{name: "secrets-exposed", plant: func(s *site) {
		path := tokenFile(s.t, goodToken)
		must.Succeed(s.t, os.Chmod(path, 0o644))
		s.e.Settings.PrivateFiles = []config.PrivateFile{{Key: "redis.url_file", Path: path}}
	}},
	{name: "callbacks-token-plain", plant: func(s *site) { s.e.Settings.Callbacks.TokenFile = tokenFile(s.t, goodToken) }},
	{name: "callbacks-tls-unset", plant: func(s *site) {
		s.e.Settings.Callbacks.Certificates.CA = certstest.NewAuthority(s.t).File
	}},
	{
		name: "callbacks-credentials", plant: func(s *site) { s.e.Settings.Callbacks.TokenFile = s.t.TempDir() },
		also: []string{"callbacks-token-plain"},
	},
	{name: "producer-refuses", plant: func(s *site) { // with the token of another producer
		s.e.Settings.Callbacks.TokenFile = tokenFile(s.t, "an0ther-0123456789abcdef")
		s.e.Producers["stock"] = guarded(s.t, goodToken)
	}, also: []string{"callbacks-token-plain"}},
	{name: "producer-refuses", plant: func(s *site) { s.e.Producers["stock"] = guarded(s.t, goodToken) }},
	{name: "submit-trusted", plant: func(s *site) { s.e.Settings.Submit.Trust = true }},
	{name: "retention-short", plant: func(s *site) { s.e.Settings.Done.Retention = time.Second }},
	{name: "coordinator-away", plant: func(s *site) { s.e.Coordinator.Address = servers.Addresses(s.t, 1)[0] }},
	{name: "coordinator-refuses", plant: func(s *site) {
		s.e.Coordinator.Address = serveProducer(s.t, func(server grpc.ServiceRegistrar) {
			adminv1.RegisterAdminServiceServer(server, closedAdmin{})
			healthv1.RegisterHealthServer(server, health.NewServer())
		})
	}},
	{name: "messages-dead", plant: plantDead},
	{name: "refused-no-route", plant: plantRefused},
	{name: "messages-unanswered", plant: plantUnanswered, also: []string{"producer-away"}},
	{name: "producer-refused", plant: plantRefusedProducer},
	{name: "producer-split", plant: func(s *site) { // it names no store
		half := &pb.SendHalfMessageRequest{CallbackTarget: other{}.serve(s.t), MarkerStore: "live"}
		s.sendHalf(half, pb.State_STATE_PENDING)
		s.awaitFinding()
	}, also: []string{"messages-unanswered"}},
	{name: "queue-dead-letters", plant: plantDeadLetters},
	{name: "letters-waiting", plant: func(s *site) {
		s.fill("stock.dead", 3)
		s.watch(func(c *config.Config) { c.DeadLetters = map[string]config.DeadLetters{"stock": {Queue: "stock.dead"}} })
	}},
	{name: "letters-unread", plant: func(s *site) {
		s.watch(func(c *config.Config) {
			c.DeadLetters = map[string]config.DeadLetters{"stock": {Queue: "nowhere.dead"}}
		})
	}, also: []string{"dead-letters-missing"}},
	{name: "broker-unknown", plant: func(s *site) {
		due := strconv.FormatInt(time.Now().Add(10*time.Minute).UnixMilli(), 10)
		s.redis.CLI("SADD", "msghandler:{00}:parked_for", "gone")
		s.redis.CLI("ZADD", "msghandler:{00}:parked@gone", due, "orders/1")
		s.awaitFinding()
	}},
	{name: "queue-long", plant: plantLongQueue},
	{name: "queue-missing", plant: func(s *site) {
		s.watch(func(c *config.Config) { c.Events.Queues = []string{"misspelt"} })
	}},
	{name: "coordinators-unclean-end", plant: func(s *site) {
		at := strconv.FormatInt(time.Now().Add(-time.Minute).UnixMilli(), 10)
		s.redis.CLI("HSET", "msghandler:{00}:coordinators", "killed-1/0a", at+"\nrunning\n{}\n")
		s.awaitFinding()
	}},
	{name: "redis-clock-jumped", plant: func(s *site) { // some coordinator has looked while the clock was ahead
		ahead := strconv.FormatInt(time.Now().Add(3*time.Hour).UnixMilli(), 10)
		s.redis.CLI("HSET", "watching:{00}:pulse", "clock", ahead)
		s.watch(func(*config.Config) {})
	}},
	{name: "producer-forbidden", plant: func(s *site) { s.e.Producers["stock"] = "stock.svc:9000" }},
	{name: "producer-forbidden", plant: func(s *site) { // its name is allowed, but its address is not
		s.e.Settings.Callbacks.Allow = []string{"127.0.0.1:*", "localhost:*"}
		_, port, _ := strings.Cut(other{}.serve(s.t), ":")
		s.e.Producers["stock"] = "localhost:" + port
	}, also: []string{"callbacks-networks-unset"}},
	{name: "producer-forbidden", plant: func(s *site) { // nobody may be called there
		s.e.Settings.Callbacks.Allow = []string{"127.0.0.1:*", "169.254.169.254:*"}
		s.e.Producers["stock"] = "169.254.169.254:80"
	}},
	{name: "descriptors-low", plant: func(s *site) { s.e.Descriptors = 256 }},
	{name: "producer-away", plant: func(s *site) { s.e.Producers["stock"] = servers.Addresses(s.t, 1)[0] }},
	{name: "producer-away", plant: plantHanging},
	{name: "producer-away", plant: func(s *site) { // gRPC gives up before the call does
		s.e.Settings.Confirm.Timeout = 10 * time.Second
		plantHanging(s)
	}},
	{name: "producer-no-service", plant: func(s *site) { s.e.Producers["stock"] = s.redis.Addr }},
	{name: "producer-no-service", plant: func(s *site) { s.e.Producers["stock"] = s.app.HTTPAddr() }},
	{name: "producer-no-service", plant: func(s *site) {
		s.e.Producers["stock"] = serveProducer(s.t, func(grpc.ServiceRegistrar) {})
	}},
	{name: "producer-certificate", plant: func(s *site) { // called with TLS, but serves without
		s.e.Settings.Producers["stock"] = config.Producer{TLS: new(true)}
		s.e.Producers["stock"] = other{}.serve(s.t)
	}},
	{
		name: "producer-mute",
		plant: confirming(func(ctx context.Context, _ *pb.ConfirmRequest) (*pb.ConfirmResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}),
	},
	{
		name: "producer-slow",
		plant: confirming(func(ctx context.Context, r *pb.ConfirmRequest) (*pb.ConfirmResponse, error) {
			select {
			case <-time.After(1700 * time.Millisecond): // as long as this fault is
			case <-ctx.Done():
			}
			return say(pb.Verdict_VERDICT_UNKNOWN)(ctx, r)
		}),
	},
	{name: "producer-fails", plant: confirming(func(context.Context, *pb.ConfirmRequest) (*pb.ConfirmResponse, error) {
		return nil, status.Error(codes.NotFound, "no such order")
	})},
	{name: "producer-another", plant: func(s *site) {
		s.e.Producers["stock"] = s.e.Settings.Producers["orders"].Target
	}},
	{name: "producer-commits-unknown", plant: confirming(say(pb.Verdict_VERDICT_COMMITTED))},
	{name: "producer-hasty", plant: confirming(say(pb.Verdict_VERDICT_ROLLED_BACK))},
	{name: "producer-keeps-markers", plant: func(s *site) {
		s.e.Producers["stock"] = other{drop: func(context.Context, *pb.DeleteBusinessRequest) error {
			return status.Error(codes.NotFound, "no such order")
		}}.serve(s.t)
	}},
}

const goodToken = "g00d-0123456789abcdef"

func tokenFile(t *testing.T, token string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens")
	must.Succeed(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
	return file
}

// closedAdmin is an admin API that knows no caller.
type closedAdmin struct {
	adminv1.UnimplementedAdminServiceServer
}

func (closedAdmin) GetStats(context.Context, *adminv1.GetStatsRequest) (*adminv1.GetStatsResponse, error) {
	return nil, status.Error(codes.Unauthenticated, "show a token")
}

// guarded serves a producer, stock, that demands a token.
func guarded(t *testing.T, token string) string {
	t.Helper()
	p, err := producer.New(producer.Config{
		Name: "stock", Coordinator: "127.0.0.1:1", Markers: memory.New(),
		Coordinators: producer.Coordinators{Tokens: []string{token}}, Logger: slog.New(slog.DiscardHandler),
	})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return serveProducer(t, p.Register)
}

func TestPlantedMistakesAreFound(t *testing.T) {
	t.Parallel()
	broker := servers.RabbitMQ(t).URL
	for _, p := range planted {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, broker)
			p.plant(s)
			found := doctor.Examine(t.Context(), s.e)
			want := slices.Sorted(slices.Values(append([]string{p.name}, p.also...)))
			if names := complaints(t, found); !slices.Equal(names, want) {
				t.Errorf("found %q, want %q:\n%+v", names, want, found)
			}
		})
	}
}

func TestUnansweredMessagesSayWhereToLook(t *testing.T) {
	t.Parallel()
	broker := servers.RabbitMQ(t).URL
	closed := servers.Addresses(t, 1)[0]
	t.Run("target of the message", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, broker)
		s.send(closed, pb.State_STATE_PENDING)
		s.wantRemedy("messages-unanswered", "msghandler doctor --producer stock=dns:///"+closed)
	})
	t.Run("target of the configuration", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, broker, func(c *config.Config) { c.Producers["stock"] = config.Producer{Target: closed} })
		s.send("", pb.State_STATE_PENDING)
		s.wantRemedy("messages-unanswered", "with the coordinator's configuration")
	})
}

// wantRemedy demands a finding whose remedy has a text.
func (s *site) wantRemedy(name, text string) {
	s.t.Helper()
	found := doctor.Examine(s.t.Context(), s.e)
	if !slices.ContainsFunc(found, func(f doctor.Finding) bool {
		return f.Name == name && strings.Contains(f.Remedy, text)
	}) {
		s.t.Errorf("no finding %s has a remedy with %q: %+v", name, text, found)
	}
}

// named are the ways in which the sources name a finding. The store's findings get the prefix redis- later.
var named = regexp.MustCompile(`(?s)(?:warn|trouble|note|add)\(\s*(?:\w+(?:\(\w+\))?,\s*)?"([a-z]+(?:-[a-z]+)+)"|` +
	`Name: +"([a-z]+(?:-[a-z]+)+)"|(?:f\.add\(|misfit{\s*)"([a-z-]+)", (?:Refuse|Warning|Note|fmt)|` +
	`(?:noteLife\(|uncleanEnd = )"([a-z-]+)"`)

func TestEachFindingIsExplained(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/reference/findings.md")
	must.Succeed(t, err)
	explained := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^### ([a-z-]+)$`).FindAllStringSubmatch(string(page), -1) {
		explained[heading[1]] = true
	}
	names := findingsOfTheSources(t)
	for name := range names {
		if !explained[name] {
			t.Errorf("docs/reference/findings.md does not explain %s", name)
		}
	}
	for name := range explained {
		if !names[name] {
			t.Errorf("docs/reference/findings.md explains %s, and there is no such finding", name)
		}
	}
	for _, p := range planted {
		if !names[p.name] {
			t.Errorf("%s is planted, and the sources have no such finding", p.name)
		}
	}
}

// findingsOfTheSources are the names of all findings of the doctor, of coordinators and of the store.
func findingsOfTheSources(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, c := range cause.All() {
		names[c.Name] = true
	}
	for folder, prefix := range map[string]string{".": "", "..": "", "../../store/redis": "redis-"} {
		sources, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil || len(sources) == 0 {
			t.Fatal(folder, err)
		}
		for _, path := range sources {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			source, err := os.ReadFile(path)
			must.Succeed(t, err)
			for _, found := range named.FindAllStringSubmatch(string(source), -1) {
				name := cmp.Or(found[1], found[2], found[3], found[4])
				names[prefix+strings.TrimPrefix(name, prefix)] = true
			}
		}
	}
	return names
}

func plantFewRights(s *site) {
	s.redis.CLI("ACL", "SETUSER", "weak", "on", ">pw", "~other:*", "+@all")
	s.e.Settings.Redis.URL = "redis://weak:pw@" + s.redis.Addr + "/0"
}

func redisSetting(name, value string) func(*site) {
	return func(s *site) { s.redis.CLI("CONFIG", "SET", name, value) }
}

func confirming(answer func(context.Context, *pb.ConfirmRequest) (*pb.ConfirmResponse, error)) func(*site) {
	return func(s *site) { s.e.Producers["stock"] = other{confirm: answer}.serve(s.t) }
}

// fillMemory makes Redis use a percentage of its memory limit. The data are large enough that connections and messages
// do not change the percentage.
func fillMemory(percent float64) func(*site) {
	return func(s *site) {
		s.redis.CLI("SETRANGE", "filler", strconv.Itoa(64<<20), "x")
		_, rest, _ := strings.Cut(s.redis.CLI("INFO", "memory"), "used_memory:")
		used, err := strconv.ParseFloat(strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]), 64)
		must.Succeed(s.t, err)
		s.redis.CLI("CONFIG", "SET", "maxmemory", strconv.Itoa(int(used*100/percent)))
	}
}

// plantFullDisk makes Redis fail to write. With appendfsync always Redis would exit.
func plantFullDisk(s *site) {
	full := servers.Redis(s.t, "--appendfsync", "everysec")
	full.FillDisk()
	s.t.Cleanup(full.FreeDisk)
	full.CLI("SET", "a", "b")
	servers.Eventually(s.t, time.Minute, "Redis notices", func() bool {
		return strings.Contains(full.CLI("INFO", "persistence"), "aof_last_write_status:err")
	})
	s.e.Settings.Redis.URL = full.URL()
}

func plantReplica(s *site) {
	host, port, _ := strings.Cut(s.redis.Addr, ":")
	replica := servers.Redis(s.t, "--appendfsync", "always", "--replicaof", host+" "+port)
	s.e.Settings.Redis.URL = replica.URL()
}

// plantLogin uses another user, or another virtual host.
func plantLogin(s *site, user *url.Userinfo, vhost string) {
	u, err := url.Parse(s.e.Settings.AMQP.URLs[0])
	must.Succeed(s.t, err)
	u.User = user
	if vhost != "" {
		u.Path = vhost
	}
	s.e.Settings.AMQP.URLs = []string{u.String()}
}

// plantDead has a message refused to the last.
func plantDead(s *site) {
	conn, err := grpc.NewClient(s.app.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(s.t, err)
	defer conn.Close()
	target := other{confirm: say(pb.Verdict_VERDICT_COMMITTED)}.serve(s.t)
	api := pb.NewMessageHandlerServiceClient(conn)
	if _, err := api.SendHalfMessage(s.t.Context(), &pb.SendHalfMessageRequest{
		Producer: "stock", CallbackTarget: target, Message: &pb.Message{Id: "1", RoutingKey: "nowhere"},
	}); err != nil {
		s.t.Fatal(err)
	}
	answer, err := api.Submit(s.t.Context(), &pb.SubmitRequest{Producer: "stock", Id: "1", Wait: pb.Wait_WAIT_DONE})
	if err != nil || answer.GetState() != pb.State_STATE_DEAD {
		s.t.Fatalf("the message is %v, %v", answer.GetState(), err)
	}
}

// plantRefused has the broker refuse a message whose next try is much later.
func plantRefused(s *site) {
	patient := s.e.Settings
	patient.Redis.Prefix, patient.Send.Backoff = "patient", []time.Duration{time.Hour}
	s.startCoordinator(patient)
	s.e.Settings, s.e.Coordinator.Address = patient, s.app.GRPCAddr()
	s.send(other{confirm: say(pb.Verdict_VERDICT_COMMITTED)}.serve(s.t), pb.State_STATE_SENDABLE)
}

// plantUnanswered stops a producer that has a message to confirm.
func plantUnanswered(s *site) { s.send(servers.Addresses(s.t, 1)[0], pb.State_STATE_PENDING) }

// send stores and submits a message for a callback target, and waits until the message has failed.
func (s *site) send(target string, state pb.State) {
	s.sendHalf(&pb.SendHalfMessageRequest{CallbackTarget: target}, state)
}

func (s *site) sendHalf(half *pb.SendHalfMessageRequest, state pb.State) {
	half.Producer, half.Message = "stock", &pb.Message{Id: "1", RoutingKey: "nowhere"}
	conn, err := grpc.NewClient(s.app.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(s.t, err)
	defer conn.Close()
	api, admin := pb.NewMessageHandlerServiceClient(conn), adminv1.NewAdminServiceClient(conn)
	if _, err := api.SendHalfMessage(s.t.Context(), half); err != nil {
		s.t.Fatal(err)
	}
	if _, err := api.Submit(s.t.Context(), &pb.SubmitRequest{Producer: "stock", Id: "1"}); err != nil {
		s.t.Fatal(err)
	}
	servers.Eventually(s.t, time.Minute, "the call has failed", func() bool {
		got, err := admin.GetMessage(s.t.Context(), &adminv1.GetMessageRequest{Producer: "stock", Id: "1"})
		return err == nil && got.GetRecord().GetState() == state && got.GetRecord().GetLastError() != ""
	})
}

// plantHanging listens and never answers, like a network that drops packets.
func plantHanging(s *site) {
	s.e.Producers["stock"] = listening(s.t)
}

// listening is the address of a listener that never answers: the system takes connections, and no process reads them.
func listening(t *testing.T) string {
	t.Helper()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = mute.Close() })
	return mute.Addr().String()
}

// TestUnavailableServersAreNamed: the operator on call must learn where to look.
func TestUnavailableServersAreNamed(t *testing.T) {
	t.Parallel()
	s := newSite(t, servers.RabbitMQ(t).URL)
	nobody := servers.Addresses(t, 1)[0]
	plantHanging(s)
	for name, c := range map[string]struct {
		plant func(e *doctor.Examination)
		want  string
	}{
		"redis-away": {
			func(e *doctor.Examination) { e.Settings.Redis.URL = "redis://user:secret@" + nobody + "/0" },
			"at " + nobody + ": ",
		},
		"coordinator-away": {func(e *doctor.Examination) { e.Coordinator.Address = nobody }, "connection refused"},
		"coordinator-away, 2": {
			func(e *doctor.Examination) { e.Coordinator.Address = s.e.Settings.Targets()["orders"] },
			"is no coordinator",
		},
		"coordinator-away, 3": {func(e *doctor.Examination) {
			e.Coordinator.Address, e.Timeout = e.Producers["stock"], time.Second
		}, "though something may listen there"},
		"coordinator-away, 4": {func(e *doctor.Examination) { e.Coordinator.Address = closing(t) }, "say what it waits for"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := s.e
			c.plant(&e)
			name, _, _ := strings.Cut(name, ",")
			for _, f := range doctor.Examine(t.Context(), e) {
				if strings.Contains(f.What, "secret") {
					t.Errorf("the doctor tells a password: %s", f.What)
				}
				if f.Name == name && strings.Contains(f.What+f.Remedy, c.want) {
					return
				}
			}
			t.Errorf("the doctor does not say %s: %s", name, c.want)
		})
	}
}

// TestABlockedBrokerIsFound hurts a broker of its own.
func TestABlockedBrokerIsFound(t *testing.T) {
	t.Parallel()
	node := servers.PrivateRabbitMQ(t)
	s := newSite(t, node.URL)
	m := node.Management()
	put := func(path string, in map[string]string) {
		t.Helper()
		must.Succeed(t, m.Call(http.MethodPut, path, in, nil))
	}
	put("/api/users/weak", map[string]string{"password": "pw", "tags": ""})
	put("/api/permissions/%2F/weak", map[string]string{"configure": ".*", "write": "^orders$", "read": ".*"})
	good := s.e.Settings.AMQP.URLs
	plantLogin(s, url.UserPassword("weak", "pw"), "")
	if names := complaints(t, doctor.Examine(t.Context(), s.e)); !slices.Equal(names, []string{"rabbitmq-permission"}) {
		t.Errorf("about a user without the right to write the doctor finds %q", names)
	}
	s.e.Settings.AMQP.URLs = good
	node.Ctl("set_vm_memory_high_watermark", "0.0000001")
	servers.Eventually(t, time.Minute, "the alarm is found", func() bool {
		return slices.Contains(complaints(t, doctor.Examine(t.Context(), s.e)), "rabbitmq-alarm")
	})
}
