package doctor_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/app/doctor"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/producer/marker/memory"
	"github.com/msghandler/msghandler/test/servers"
)

// examineDefaults examines unavailable servers and an empty callbacks.allow, of sections without any given key.
func examineDefaults(t *testing.T, defaults ...string) []doctor.Finding {
	t.Helper()
	away := servers.Addresses(t, 3)
	c := config.Default()
	c.Redis.URL, c.AMQP.URLs = "redis://"+away[0]+"/0", []string{"amqp://guest:guest@" + away[1] + "/"}
	return doctor.Examine(t.Context(), doctor.Examination{
		Settings: c, Coordinator: doctor.Coordinator{Address: away[2]}, Defaults: defaults,
	})
}

func TestTroubleOfDefaultsIsAWarning(t *testing.T) {
	t.Parallel()
	troubles := func(found []doctor.Finding) (names []string) {
		for _, f := range found {
			if f.Severity == doctor.Trouble {
				names = append(names, f.Name)
			}
		}
		slices.Sort(names)
		return names
	}
	found := examineDefaults(t, doctor.Sections()...)
	want := []string{"configuration-defaults", "coordinator-away", "rabbitmq-away", "redis-away"}
	if names := complaints(t, found); !slices.Equal(names, want) || len(troubles(found)) > 0 {
		t.Errorf("about defaults the doctor finds %q, and as trouble %q", names, troubles(found))
	}
	first := found[0].What
	if !strings.HasSuffix(first, "the defaults of callbacks.allow, redis.url, amqp.url are examined") {
		t.Errorf("the doctor begins with %q", first)
	}
	if got, want := troubles(examineDefaults(t, "callbacks", "amqp")), []string{"redis-away"}; !slices.Equal(got, want) {
		t.Errorf("about a given Redis that is away the doctor finds as trouble %q", got)
	}
	want = []string{"rabbitmq-away", "redis-away"}
	if got := troubles(examineDefaults(t)); !slices.Equal(got, want) {
		t.Errorf("about a given configuration the doctor finds as trouble %q", got)
	}
}

// Defaults that lead to a coordinator and servers that are well are most likely the coordinator's own.
func TestHealthyDefaultsAreNoFinding(t *testing.T) {
	t.Parallel()
	s := newSite(t, servers.RabbitMQ(t).URL)
	s.e.Defaults = doctor.Sections()
	found := doctor.Examine(t.Context(), s.e)
	if names := complaints(t, found); len(names) > 0 {
		t.Errorf("found %q", names)
	}
	examined := "the defaults of callbacks.allow, redis.url, amqp.url are examined"
	if first := found[0].What; !strings.HasSuffix(first, examined) {
		t.Errorf("the doctor does not name the examined parts: %s", first)
	}
	s.redis.CLI("CONFIG", "SET", "appendfsync", "everysec")
	want := []string{"configuration-defaults", "redis-unsynced"}
	if names := complaints(t, doctor.Examine(t.Context(), s.e)); !slices.Equal(names, want) {
		t.Errorf("about a failing Redis the doctor finds %q", names)
	}
}

// A target typed by the operator is not forbidden, neither by name nor by address.
func TestProducerIsVerifiedWithoutConfiguration(t *testing.T) {
	t.Parallel()
	target := serveSDK(t, memory.New())
	_, port, _ := strings.Cut(target, ":")
	for _, typed := range []string{target, "localhost:" + port} {
		e := doctor.Examination{Settings: config.Default(), Defaults: doctor.Sections()}
		found := doctor.Verify(t.Context(), e, "orders", typed, "1001")
		want := []string{"configuration-defaults", "producer-undecided"} // its markers are in memory
		if names := complaints(t, found); !slices.Equal(names, want) || doctor.Worst(found) != doctor.Warning {
			t.Errorf("%s: found %q:\n%+v", typed, names, found)
		}
	}
}

func TestVerifyNamesTheProducerThatAnswers(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Callbacks.Allow = []string{"127.0.0.1:*"}
	found := doctor.Verify(t.Context(), doctor.Examination{Settings: c}, "stock", serveSDK(t, memory.New()))
	if names := complaints(t, found); !slices.Equal(names, []string{"producer-another"}) {
		t.Fatalf("found %q", names)
	}
	if f := found[0]; !strings.Contains(f.What, `this is the producer "orders", not "stock"`) ||
		strings.Contains(f.Remedy, "log") {
		t.Errorf("the doctor says %+v", f)
	}
}
