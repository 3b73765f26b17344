package doctor_test

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/app/doctor"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

// padded writes a version at the length of another version, because the proxy keeps lengths.
func padded(major, minor, patch int, like string) string {
	start := fmt.Sprintf("%d.%d.", major, minor)
	return start + fmt.Sprintf("%0*d", len(like)-len(start), patch)
}

// ofArea are the names and severities of the findings of an area.
func ofArea(found []doctor.Finding, area string) (names []string) {
	for _, f := range found {
		if f.Area == area && f.Severity != doctor.OK {
			names = append(names, f.Severity.String()+" "+f.Name)
		}
	}
	slices.Sort(names)
	return names
}

func TestVersionsOfRedisAreJudged(t *testing.T) {
	t.Parallel()
	s := newSite(t, servers.RabbitMQ(t).URL)
	const old, hole, untested = "warning redis-old", "note redis-lua-hole", "note redis-new"
	type version struct{ major, minor, patch int }
	key, cases := "redis_version:", map[version][]string{
		{6, 2, 9}: {hole, old}, {7, 0, 5}: {hole}, {7, 2, 4}: {hole}, {8, 0, 3}: {hole}, {8, 0, 4}: nil,
		{8, 2, 1}: {hole, untested}, {8, 2, 2}: {untested}, {9, 0, 0}: {untested},
	}
	if strings.Contains(s.redis.CLI("INFO", "server"), "valkey_version") {
		key, cases = "valkey_version:", map[version][]string{
			{7, 2, 9}: {
				hole,
				old,
			}, {8, 0, 5}: {hole}, {8, 0, 6}: nil, {8, 1, 3}: {hole}, {8, 1, 4}: nil, {9, 0, 0}: nil, {9, 2, 0}: {untested},
		}
	}
	now := regexp.MustCompile(key + `([\d.]+)`).FindStringSubmatch(s.redis.CLI("INFO", "server"))
	for v, want := range cases {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			t.Parallel()
			e := s.e
			proxy := wire.Rewrite(t, s.redis.Addr, now[0], key+padded(v.major, v.minor, v.patch, now[1]))
			e.Settings.Redis.URL = "redis://" + proxy.Addr + "/0"
			found := doctor.Examine(t.Context(), e)
			if got := ofArea(found, "redis"); !slices.Equal(got, want) {
				t.Errorf("found %q, want %q: %+v", got, want, found)
			}
			if doctor.Worst(found) == doctor.Trouble {
				t.Errorf("a version is trouble: %+v", found)
			}
		})
	}
}

func TestVersionsOfRabbitMQAreJudged(t *testing.T) {
	t.Parallel()
	vhost := servers.RabbitMQ(t)
	s := newSite(t, vhost.URL)
	var overview struct {
		Version string `json:"rabbitmq_version"`
	}
	must.Succeed(t, vhost.Management().Call(http.MethodGet, "/api/overview", nil, &overview))
	for minor, want := range map[[2]int][]string{
		{3, 9}: {"warning rabbitmq-old"}, {4, 0}: nil, {4, 3}: nil, {4, 4}: {"note rabbitmq-new"},
		{5, 0}: {"note rabbitmq-new"},
	} {
		e := s.e
		proxy := wire.Rewrite(t, wire.Host(t, vhost.URL), overview.Version, padded(minor[0], minor[1], 1, overview.Version))
		e.Settings.AMQP.URLs = []string{proxy.URL(vhost.URL)}
		found := doctor.Examine(context.Background(), e)
		if got := ofArea(found, "rabbitmq"); !slices.Equal(got, want) {
			t.Errorf("RabbitMQ %v: found %q, want %q: %+v", minor, got, want, found)
		}
	}
}
