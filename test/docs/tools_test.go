package docs

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/msghandler/msghandler/proto/msghandler/admin/v1" // registers the methods
	_ "github.com/msghandler/msghandler/proto/msghandler/v1"       // registers the methods
)

var targetPattern = regexp.MustCompile(`(?m)^([a-z-]+):`)

// make demands that the targets exist, and the variables.
func (s *script) make(line uint, args []string) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		s.t.Fatal(err)
	}
	var targets []string
	for _, found := range targetPattern.FindAllStringSubmatch(string(makefile), -1) {
		targets = append(targets, found[1])
	}
	for _, arg := range args {
		name, _, isVariable := strings.Cut(arg, "=")
		switch {
		case strings.HasPrefix(arg, "-"):
		case isVariable && !regexp.MustCompile(`(?m)\$\(`+name+`\b|^`+name+` `).Match(makefile):
			s.problem(line, "the Makefile has no variable %s", name)
		case !isVariable && !slices.Contains(targets, arg):
			s.problem(line, "the Makefile has no target %s: make help lists the targets", arg)
		}
	}
}

// goTool demands that each alternative of -run, -bench and -fuzz names a test in the packages of go test.
func (s *script) goTool(line uint, args []string) {
	var patterns, functions []string
	for i, arg := range args {
		if slices.Contains([]string{"-run", "-bench", "-fuzz"}, arg) && i+1 < len(args) {
			patterns = append(patterns, strings.Split(args[i+1], "|")...)
		}
		if directory, isPackage := strings.CutPrefix(arg, "./"); isPackage {
			functions = append(functions, functionsIn(filepath.Join(root, directory))...)
		}
	}
	for _, pattern := range patterns {
		first, _, _ := strings.Cut(pattern, "/")
		name, err := regexp.Compile(first)
		all := strings.Trim(first, "^$.") == ""
		if len(functions) > 0 && (err != nil || !all && !slices.ContainsFunc(functions, name.MatchString)) {
			s.problem(line, "no test of these packages is named %s", pattern)
		}
	}
}

var functionPattern = regexp.MustCompile(`(?m)^func (\w+)\(`)

// functionsIn are the names of the functions of a package.
func functionsIn(directory string) (names []string) {
	files, _ := filepath.Glob(filepath.Join(directory, "*.go")) // a missing directory is reported as a path
	for _, file := range files {
		source, _ := os.ReadFile(file)
		for _, found := range functionPattern.FindAllStringSubmatch(string(source), -1) {
			names = append(names, found[1])
		}
	}
	return names
}

// curl demands that a method or page of ours exists. Addresses without a port, and RabbitMQ's API, are others'.
func (s *script) curl(line uint, args []string) {
	for _, arg := range args {
		u, err := url.Parse(arg)
		if err != nil || u.Port() == "" || strings.HasPrefix(u.Path, "/api/") || strings.Contains(arg, unknown) {
			continue
		}
		if strings.HasPrefix(u.Path, "/msghandler.") {
			method := protoreflect.FullName(strings.ReplaceAll(u.Path[1:], "/", "."))
			if _, err := protoregistry.GlobalFiles.FindDescriptorByName(method); err != nil {
				s.problem(line, "%s: %v: the protos in proto/msghandler have the methods", arg, err)
			}
			continue
		}
		request := &http.Request{Method: methodOf(args), URL: u}
		if _, served := servedPaths().Handler(request); served == "" {
			s.problem(line, "no program or example of ours serves %s %s", request.Method, u.Path)
		}
	}
}

// methodOf is the method of a call of curl.
func methodOf(args []string) string {
	for i, arg := range args {
		if (arg == "-X" || arg == "--request") && i+1 < len(args) {
			return args[i+1]
		}
	}
	if slices.ContainsFunc(args, func(arg string) bool { return arg == "-d" || strings.HasPrefix(arg, "--data") }) {
		return http.MethodPost
	}
	return http.MethodGet
}

// servedPattern leaves out GET /, the console's answer to unknown addresses.
var servedPattern = regexp.MustCompile(`"((?:GET|POST) /[^"]+)"`)

// servedPaths are the paths that our programs and examples serve, from their sources.
var servedPaths = sync.OnceValue(func() *http.ServeMux {
	mux, added := http.NewServeMux(), map[string]bool{}
	for _, pattern := range []string{
		"internal/console/*.go", "internal/console/*/*.go", "dev/demo/orders/*.go",
		"examples/*/*.go",
	} {
		files, _ := filepath.Glob(filepath.Join(root, pattern))
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, _ := os.ReadFile(file)
			for _, found := range servedPattern.FindAllStringSubmatch(string(source), -1) {
				if !added[found[1]] {
					mux.Handle(found[1], http.NotFoundHandler())
				}
				added[found[1]] = true
			}
		}
	}
	return mux
})
