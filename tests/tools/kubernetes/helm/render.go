// Renders a Helm chart as `helm template` does, as far as this chart goes: Go's text/template with Sprig's functions and
// include, required, toYaml; strict about values that do not exist where Helm is not.
//
//	render CHART NAMESPACE RELEASE [VALUES.yaml]
//
// Needs Debian's golang-go, golang-github-masterminds-sprig-dev and golang-k8s-sigs-yaml-dev.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/ioutil"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"sigs.k8s.io/yaml"
)

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func readYaml(path string) map[string]interface{} {
	text, err := ioutil.ReadFile(path)
	fatal(err)
	values := map[string]interface{}{}
	fatal(yaml.UnmarshalStrict(text, &values))
	return values
}

// As Helm merges: maps by key, everything else is replaced.
func merge(into, from map[string]interface{}) {
	for key, value := range from {
		below, isMap := value.(map[string]interface{})
		there, wasMap := into[key].(map[string]interface{})
		if isMap && wasMap {
			merge(there, below)
		} else {
			into[key] = value
		}
	}
}

func main() {
	chart, namespace, release := os.Args[1], os.Args[2], os.Args[3]
	description := readYaml(filepath.Join(chart, "Chart.yaml"))
	about := map[string]interface{}{}
	for key, value := range description { // Helm shows its fields with capitals
		about[strings.ToUpper(key[:1])+key[1:]] = value
	}
	values := readYaml(filepath.Join(chart, "values.yaml"))
	if len(os.Args) > 4 {
		merge(values, readYaml(os.Args[4]))
	}

	all := template.New("chart")
	functions := sprig.TxtFuncMap()
	functions["include"] = func(name string, data interface{}) (string, error) {
		var out bytes.Buffer
		err := all.ExecuteTemplate(&out, name, data)
		return out.String(), err
	}
	functions["required"] = func(why string, value interface{}) (interface{}, error) {
		if value == nil || value == "" {
			return nil, errors.New(why)
		}
		return value, nil
	}
	functions["toYaml"] = func(value interface{}) (string, error) {
		text, err := yaml.Marshal(value)
		return strings.TrimSuffix(string(text), "\n"), err
	}
	all.Funcs(functions)

	files, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	fatal(err)
	sort.Strings(files)
	for _, file := range files {
		text, err := ioutil.ReadFile(file)
		fatal(err)
		_, err = all.New(filepath.Base(file)).Parse(string(text))
		fatal(err)
	}
	root := map[string]interface{}{
		"Values":  values,
		"Chart":   about,
		"Release": map[string]interface{}{"Name": release, "Namespace": namespace, "Service": "Helm"},
	}
	for _, file := range files {
		name := filepath.Base(file)
		if filepath.Ext(name) == ".tpl" {
			continue
		}
		var out bytes.Buffer
		fatal(all.ExecuteTemplate(&out, name, root))
		if strings.TrimSpace(out.String()) == "" {
			continue
		}
		if name == "NOTES.txt" {
			fmt.Fprint(os.Stderr, out.String())
			continue
		}
		fmt.Printf("---\n# Source: %s/templates/%s\n%s\n", filepath.Base(chart), name, strings.TrimSpace(out.String()))
	}
}
