// Package deploy checks the Docker files and the set-up script.
package deploy

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/test/programs"
)

var root = filepath.Join("..", "..")

// service holds the tested fields of a service of docker-compose.yml.
type service struct {
	Image       string
	Entrypoint  []string
	Command     []string
	Environment map[string]string
	Ports       []string
	Volumes     []string
	Healthcheck map[string]any
	MemLimit    string                                `yaml:"mem_limit"`
	ReadOnly    bool                                  `yaml:"read_only"`
	CapDrop     []string                              `yaml:"cap_drop"`
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
}

func compose(t *testing.T) (services map[string]service, volumes map[string]any) {
	t.Helper()
	text := read(t, "docker-compose.yml")
	var file struct {
		Services map[string]service
		Volumes  map[string]any
	}
	// As Compose does with an unset variable that has a default.
	text = regexp.MustCompile(`\$\{[A-Z_]+:-([^}]*)\}`).ReplaceAllString(text, "$1")
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		t.Fatal(err)
	}
	return file.Services, file.Volumes
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestComposeConfigurationIsValid(t *testing.T) {
	t.Parallel()
	services, _ := compose(t)
	var env []string
	for name, value := range services["coordinator"].Environment {
		env = append(env, name+"="+value)
	}
	c, err := config.Load(config.Sources{Env: env})
	if err != nil {
		t.Fatal(err)
	}
	if !c.Access.Anonymous || c.Access.TokenFile != "" {
		t.Error("the service listens beyond its own loopback, and the health check shows no token")
	}
	if s := services["coordinator"]; s.MemLimit != "1g" || s.Environment["GOMEMLIMIT"] != "900MiB" || !s.ReadOnly ||
		!slices.Contains(s.CapDrop, "ALL") {
		t.Errorf("the coordinator may take more than its needs: %+v", s)
	}
	if listen := flagOf(services["producer-demo"].Command, "--listen"); listen != "" || len(c.Callbacks.Allow) > 0 {
		t.Errorf("the producer is called at %q, and callbacks.allow is %q: no port is needed", listen, c.Callbacks.Allow)
	}
	if broker := flagOf(services["consumer-demo"].Command, "--amqp"); !slices.Contains(c.AMQP.URLs, broker) {
		t.Error("the consumer reads from another broker than the coordinator writes to")
	}
}

// flagOf is the value of --name=value.
func flagOf(command []string, name string) string {
	for _, arg := range command {
		if value, ok := strings.CutPrefix(arg, name+"="); ok {
			return value
		}
	}
	return ""
}

func TestComposeServicesMatchEachOther(t *testing.T) {
	t.Parallel()
	services, volumes := compose(t)
	if want := []string{"consumer-demo", "coordinator", "producer-demo", "rabbitmq", "redis"}; !slices.Equal(
		slices.Sorted(maps.Keys(services)), want) {
		t.Fatalf("services %v, want %v", slices.Sorted(maps.Keys(services)), want)
	}
	for name, s := range services {
		for other, on := range s.DependsOn {
			if _, ok := services[other]; !ok {
				t.Errorf("%s depends on %s, which there is not", name, other)
			}
			if on.Condition == "service_healthy" && services[other].Healthcheck == nil {
				t.Errorf("%s waits for the health of %s, which has no check", name, other)
			}
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s publishes %s beyond this machine", name, port)
			}
		}
		for _, volume := range s.Volumes {
			source, _, _ := strings.Cut(volume, ":")
			if _, ok := volumes[source]; !ok {
				t.Errorf("%s uses volume %s, which is not declared", name, volume)
			}
		}
		if strings.HasSuffix(s.Image, ":latest") {
			t.Errorf("%s takes an unpinned image: %s", name, s.Image)
		}
	}
	redis := strings.Join(services["redis"].Command, " ")
	for _, needed := range []string{"--appendonly yes", "--appendfsync always", "--maxmemory-policy noeviction"} {
		if !strings.Contains(redis, needed) {
			t.Errorf("redis runs without %s, which the promises need", needed)
		}
	}
}

func TestMain(m *testing.M) { os.Exit(programs.Main(m, "...")) }

// The image's programs and the flags that Compose and the script give them exist.
func TestProgramsAndFlagsExist(t *testing.T) {
	t.Parallel()
	services, _ := compose(t)
	docker := read(t, "Dockerfile")
	bin := programs.Directory()
	commands := map[string]string{
		"producer-demo": strings.Join(services["producer-demo"].Command, " "),
		"consumer-demo": strings.Join(services["consumer-demo"].Command, " "),
		"msghandler":    "",
	}
	for _, line := range strings.Split(strings.ReplaceAll(read(t, "scripts/debian-setup.sh"), "\\\n", " "), "\n") {
		for program := range commands {
			if strings.Contains(line, "/"+program+`"`) && !strings.Contains(line, `" token `) { // with flags of its own
				commands[program] += " " + line
			}
		}
	}
	for program, command := range commands {
		if !strings.Contains(docker, "./cmd/"+program) {
			t.Errorf("the image has no %s", program)
		}
		help, err := exec.Command(filepath.Join(bin, program), "--help").CombinedOutput()
		if err != nil {
			t.Errorf("%s --help: %v\n%s", program, err, help)
		}
		for _, flag := range regexp.MustCompile(`--[a-z][a-z-]*`).FindAllString(command, -1) {
			if !regexp.MustCompile(flag + `\b`).Match(help) {
				t.Errorf("%s has no flag %s", program, flag)
			}
		}
	}
	check, _ := services["coordinator"].Healthcheck["test"].([]any)
	if len(check) < 3 || check[1] != "/msghandler" {
		t.Fatalf("health check %v", check)
	}
	command := exec.Command(filepath.Join(bin, "msghandler"), "stats", "--timeout", "1s", "--server", "127.0.0.1:1")
	if out, _ := command.CombinedOutput(); command.ProcessState.ExitCode() != 1 {
		t.Errorf("the health check of a missing coordinator ends with %v:\n%s", command.ProcessState, out)
	}
}

// A flag that is documented after "msghandler serve" must exist.
func TestDocumentedServeFlagsExist(t *testing.T) {
	command := regexp.MustCompile(`msghandler serve((?:\s+\\?\s*--\S+)+)`)
	flag := regexp.MustCompile(`--([a-z_.-]+)=`)
	for _, page := range []string{"README.md", "docs/run/install.md"} {
		found := command.FindAllString(read(t, page), -1)
		if len(found) == 0 {
			t.Errorf("%s has no such command: take the command out of this test", page)
		}
		for _, typed := range found {
			for _, name := range flag.FindAllStringSubmatch(typed, -1) {
				if _, known := config.Find(name[1]); !known {
					t.Errorf("%s: serve knows no flag --%s", page, name[1])
				}
			}
		}
	}
}

// What git ignores, such as private files of a developer, is in no build context either.
func TestDockerContextHasWhatGitKeeps(t *testing.T) {
	t.Parallel()
	ignored := strings.Split(read(t, ".dockerignore"), "\n")
	for line := range strings.SplitSeq(read(t, ".gitignore"), "\n") {
		folder, rooted := strings.CutPrefix(strings.TrimSuffix(line, "/"), "/")
		if rooted && !slices.Contains(ignored, folder) {
			t.Errorf("git ignores /%s, and .dockerignore does not", folder)
		}
	}
}
