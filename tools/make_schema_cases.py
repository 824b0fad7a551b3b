#!/usr/bin/env python3
"""Makes tests/constraint/schemas.json: schemas by keyword, and JSON texts with the verdicts of jsonschema-rs.

usage: make_schema_cases.py   (needs jsonschema-rs from PyPI; written with 0.61)

The schemas and texts are this project's own. Each text is also written with white space and with escapes; those must get
the same verdict. The file lists [keyword, schema, texts that are valid, texts that are not].
"""
import json
import os
import random

import jsonschema_rs

OUT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "constraint", "schemas.json")
OBJECT = {"type": "object"}


def closed(required=(), **properties):
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


# keyword, schema, texts; a text is JSON, or a value that is written as JSON
CASES = [
    ("type", {}, ["1", "-0", "1.5e3", "[]", "{}", '"x"', "null", "true", '{"a":[{"b":null}]}']),
    ("type", True, ["1", '{"a":{"b":[1,2,[]]}}']),
    ("type", {"type": "integer"}, ["1", "-3", "0", "1.0", "-2.00", "1.5", '"1"', "true", "null", "12345678901234567890"]),
    ("type", {"type": "number"}, ["1", "1.25", "1e5", "2E-3", "-0.5", '"1"', "[1]"]),
    ("type", {"type": ["string", "null"]}, ['"a"', "null", "1", "{}"]),
    ("type", {"type": ["integer", "boolean"]}, ["1", "1.5", "true", "false", "null"]),
    ("type", {"type": "array"}, ["[]", '[1,"a",null]', "{}", "1"]),
    ("type", {"type": "object"}, ["{}", '{"a":1}', '{"":{"":[]}}', "[]"]),
    ("minimum", {"minimum": 10}, ["10", "9", "10.0", "9.99", "11", "100", '"x"', "-100"]),
    ("minimum", {"type": "integer", "minimum": -12}, ["-12", "-13", "0", "-1", "-9", "-100", "7"]),
    ("minimum", {"minimum": 0}, ["0", "-0.0", "-1", "5e-7", "1e20", "-1e-5"]),
    ("minimum", {"minimum": 1.25}, ["1.25", "1.250", "1.2", "1.3", "1", "2"]),
    ("minimum", {"minimum": -0.5, "maximum": 0.5}, ["-0.5", "0.5", "-0.51", "0.500001", "0", "-0", "0.4999"]),
    ("maximum", {"maximum": 255, "minimum": 0, "type": "integer"}, [str(i) for i in (0, 9, 10, 99, 100, 249, 255, 256, 300, 1000, -1)]),
    ("maximum", {"maximum": 9223372036854775807, "type": "integer"}, ["9223372036854775807", "9223372036854775808", "5"]),
    ("maximum", {"maximum": -3.5}, ["-3.5", "-3.4", "-4", "3", "-35"]),
    ("exclusiveMinimum", {"exclusiveMinimum": 0}, ["0", "0.0", "1e-9", "-1", "0.1", "-0"]),
    ("exclusiveMinimum", {"exclusiveMinimum": 3, "minimum": 3}, ["3", "3.0", "3.01", "2"]),
    ("exclusiveMaximum", {"exclusiveMaximum": 100, "type": "integer"}, ["99", "100", "100.0", "99.0", "-5"]),
    ("exclusiveMaximum", {"exclusiveMaximum": 0.1}, ["0.1", "0.10", "0.09", "0.0999999", "0.11", "-7"]),
    ("multipleOf", {"multipleOf": 3}, ["0", "3", "-9", "12", "10", "3.0", "4.5", "111111111111"]),
    ("multipleOf", {"multipleOf": 0.01}, ["19.99", "0.07", "19.999", "5", "4.35", "0.005"]),
    ("multipleOf", {"multipleOf": 2.5}, ["5", "7.5", "2.50", "6", "0"]),
    ("multipleOf", {"multipleOf": 7, "minimum": 10, "maximum": 40}, ["7", "14", "35", "42", "15", "28.0"]),
    ("multipleOf", {"type": "integer", "multipleOf": 0.5}, ["1", "2", "0.5", "1.0"]),
    ("minLength", {"minLength": 2}, ['"ab"', '"a"', '""', '"日本"', '"\\ud83d\\ude00"', '"😀😀"', "1"]),
    ("maxLength", {"maxLength": 3}, ['"abc"', '"abcd"', '"日本語"', '"\\u0041\\u0042\\u0043"', '"\\n\\t\\\\"', '"\\n\\t\\\\x"']),
    ("maxLength", {"minLength": 2, "maxLength": 2, "type": "string"}, ['"ab"', '"a"', '"abc"', '"a\\""']),
    ("maxLength", {"maxLength": 5000, "type": "string"}, ['"' + "x" * 5000 + '"', '"' + "x" * 5001 + '"']),
    ("pattern", {"pattern": "^a+$"}, ['"aaa"', '"ab"', '""', '"\\u0061"', "3"]),
    ("pattern", {"pattern": "b"}, ['"abc"', '"ac"', '"b"', '""']),
    ("pattern", {"pattern": "^[A-Z]{2}\\d{3}$"}, ['"AB123"', '"AB12"', '"ab123"', '"AB1234"']),
    ("pattern", {"pattern": "^a|b$"}, ['"axx"', '"xxb"', '"xax"', '"ab"']),
    ("pattern", {"pattern": "^\\S+@\\S+$", "minLength": 5, "maxLength": 8}, ['"a@bcd"', '"a@b"', '"aaaa@bbbbb"', '"a a@bcd"']),
    ("pattern", {"pattern": "^(?!foo)[a-z]+$"}, ['"bar"', '"foo"', '"foobar"', '"fo"']),
    ("pattern", {"pattern": "^[^\"\\\\/]+$"}, ['"a"', '"\\""', '"\\/"', '"a\\\\b"']),
    ("pattern", {"pattern": "^\\w\\s.$"}, ['"a b"', '"é b"', '"a\\tx"', '"a\\u00a0x"', '"a x\\n"']),
    ("format", {"format": "date"}, ['"2024-02-29"', '"2023-02-29"', '"1900-02-29"', '"2000-02-29"', '"2024-13-01"', '"2024-1-01"', "5"]),
    ("format", {"format": "time"}, ['"10:20:30Z"', '"10:20:30+02:00"', '"25:00:00Z"', '"10:20:30"', '"10:20:30.125Z"']),
    ("format", {"format": "date-time"}, ['"2024-02-29T10:20:30Z"', '"2024-02-30T10:20:30Z"', '"2024-02-29 10:20:30"', '"2024-02-29t10:20:30z"']),
    ("format", {"format": "duration"}, ['"P1Y2M3DT4H5M6S"', '"PT"', '"P2W"', '"P1W2D"', '"P"', '"PT36H"']),
    ("format", {"format": "uuid"}, ['"123e4567-e89b-12d3-a456-426614174000"', '"123e4567e89b12d3a456426614174000"', '"x"']),
    ("format", {"format": "email"}, ['"a.b@example.com"', '"a..b@example.com"', '"a"', '"a@[127.0.0.1]"', '"@x.y"']),
    ("format", {"format": "hostname"}, ['"example.com"', '"-a.b"', '"a-.b"', '"localhost"', '"a..b"']),
    ("format", {"format": "ipv4"}, ['"127.0.0.1"', '"256.1.1.1"', '"1.2.3"', '"01.2.3.4"']),
    ("format", {"format": "ipv6"}, ['"::1"', '"1:2:3:4:5:6:7:8"', '"1::2::3"', '"::ffff:1.2.3.4"', '"12345::"', '"::"']),
    ("format", {"format": "uri"}, ['"https://a.b/c?d=e#f"', '"/relative"', '"urn:x:y"', '"http://a b"']),
    ("format", {"format": "uri-reference"}, ['"/a/b"', '"?q"', '"\\\\x"', '"a%20b"', '"a%2"']),
    ("format", {"format": "json-pointer"}, ['""', '"/a~1b"', '"a"', '"/a~2"']),
    ("format", {"type": "string", "format": "binary"}, ['"any text"', "1"]),
    ("enum", {"enum": ["red", "green", 3, None, True]}, ['"red"', '"gree"', "3", "3.0", "null", "true", "false"]),
    ("enum", {"enum": [[1, 2], {"a": 1, "b": [None]}]}, ["[1,2]", "[2,1]", '{"b":[null],"a":1}', '{"a":1}', '{"a":1.0,"b":[null]}']),
    ("enum", {"type": "string", "enum": ["a", 1]}, ['"a"', "1"]),
    ("const", {"const": 1}, ["1", "1.0", "1.00", "true", "10", '"1"']),
    ("const", {"const": "a\"b\\c/d\u00e9"}, ['"a\\"b\\\\c/d\u00e9"', '"a"', '"a\\\\b"']),
    ("const", {"const": {"x": {"y": [1, {"z": 0}]}}}, ['{"x":{"y":[1,{"z":0}]}}', '{"x":{"y":[1,{"z":-0.0}]}}', '{"x":{"y":[1]}}']),
    ("items", {"type": "array", "items": {"type": "integer"}}, ["[]", "[1,2,3]", '[1,"a"]', "[1.5]"]),
    ("items", {"items": False}, ["[]", "[1]", "3"]),
    ("prefixItems", {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]}, ["[]", '["a"]', '["a",1]', '["a","b"]', '["a",1,null,{}]']),
    ("prefixItems", {"type": "array", "prefixItems": [{"type": "string"}], "items": False, "minItems": 1}, ['["a"]', "[]", '["a",1]']),
    ("minItems", {"minItems": 2, "maxItems": 3}, ["[1]", "[1,2]", "[1,2,3]", "[1,2,3,4]", "{}", "[[],[]]"]),
    ("uniqueItems", {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, ["[1,2,3]", "[1,1]", "[1,12]", "[1,2,1.0]", "[]"]),
    ("uniqueItems", {"uniqueItems": True}, ['["a","b"]', '["a","\\u0061"]', "[1,true]", "[null,null]", "[0,false]"]),
    ("uniqueItems", {"items": {"enum": ["a", "b", "c"]}, "uniqueItems": True, "minItems": 2}, ['["a","b"]', '["b","a","c"]', '["a","a"]', '["a"]']),
    ("contains", {"type": "array", "contains": {"const": 5}}, ["[5]", "[1,2,5]", "[]", "[1,2]", "[5,5]"]),
    ("contains", {"contains": {"type": "string"}, "minContains": 2, "maxContains": 3}, ['["a","b"]', '["a"]', '["a",1,"b",2,"c"]', '["a","b","c","d"]']),
    ("contains", {"contains": {"minimum": 5}, "minContains": 0, "maxContains": 1}, ["[]", "[1,2]", "[6]", "[6,7]"]),
    ("contains", {"allOf": [{"contains": {"multipleOf": 2}}, {"contains": {"multipleOf": 3}}], "items": {"type": "integer"}}, ["[6]", "[2,3]", "[2]", "[3,9]", "[]"]),
    ("properties", closed(("a",), a={"type": "integer"}, b={"type": "string"}), ['{"a":1}', '{"b":"x","a":2}', '{"b":"x"}', '{"a":1,"c":2}', "{}"]),
    ("properties", {"properties": {"a": {"type": "integer"}}}, ['{"a":1}', '{"a":"x"}', '{"b":"x"}', '{"\\u0061":"x"}', "[]", "1"]),
    ("properties", {"properties": {"a": False, "b": True}}, ['{"b":1}', '{"a":1}', "{}"]),
    ("properties", {"type": "object", "properties": {"a\"b": {"type": "null"}, "é/~": {"type": "boolean"}}, "additionalProperties": False},
     ['{"a\\"b":null}', '{"é/~":true}', '{"a\\"b":1}', '{"a":null}']),
    ("required", {"required": ["x", "y"]}, ['{"x":1,"y":2}', '{"y":[],"z":0,"x":null}', '{"x":1}', "{}", '"s"']),
    ("required", {"type": "object", "required": ["k"], "additionalProperties": {"type": "integer"}}, ['{"k":1}', '{"k":"s"}', '{"j":1}', '{"j":1,"k":2}']),
    ("additionalProperties", {"type": "object", "additionalProperties": {"type": "boolean"}}, ["{}", '{"a":true,"b":false}', '{"a":1}']),
    ("additionalProperties", {"type": "object", "properties": {"id": {"type": "integer"}}, "additionalProperties": {"type": "string"}}, ['{"id":1,"x":"y"}', '{"id":"1"}', '{"x":1}', '{"i":"a","id":2,"idd":"b"}']),
    ("patternProperties", {"type": "object", "patternProperties": {"^n_": {"type": "number"}, "^s_": {"type": "string"}}, "additionalProperties": False}, ['{"n_a":1,"s_b":"x"}', '{"n_a":"x"}', '{"other":1}', "{}", '{"s_":""}']),
    ("patternProperties", {"properties": {"n_id": {"minimum": 5}}, "patternProperties": {"^n_": {"type": "integer"}}}, ['{"n_id":7}', '{"n_id":3}', '{"n_id":"x"}', '{"n_x":3}', '{"z":"x"}']),
    ("patternProperties", {"patternProperties": {"a": {"type": "integer"}, "b": {"minimum": 10}}}, ['{"ab":10}', '{"ab":9}', '{"a":1,"b":2.5}', '{"a":1,"b":12}', '{"ab":10.5}']),
    ("propertyNames", {"propertyNames": {"pattern": "^[a-z]{1,3}$"}}, ['{"abc":1}', '{"abcd":1}', '{"A":1}', "{}", "[]"]),
    ("propertyNames", {"propertyNames": {"enum": ["a", "b"]}, "type": "object", "minProperties": 1}, ['{"a":1}', '{"b":1,"a":2}', '{"c":1}', "{}"]),
    ("minProperties", {"minProperties": 1, "maxProperties": 2, "type": "object"}, ["{}", '{"a":1}', '{"a":1,"b":2}', '{"a":1,"b":2,"c":3}']),
    ("dependentRequired", {"dependentRequired": {"card": ["name", "zip"]}}, ["{}", '{"card":1}', '{"card":1,"zip":2,"name":3}', '{"zip":1}', '{"zip":1,"card":2,"name":0}']),
    ("dependentSchemas", {"dependentSchemas": {"a": {"properties": {"b": {"type": "integer"}}, "required": ["b"]}}}, ["{}", '{"a":1}', '{"a":1,"b":2}', '{"b":"x"}', '{"b":"x","a":1}']),
    ("unevaluatedProperties", {"allOf": [{"properties": {"a": {"type": "integer"}}}], "properties": {"b": {}}, "unevaluatedProperties": False}, ['{"a":1,"b":2}', '{"c":1}', '{"a":"x"}', "{}"]),
    ("unevaluatedProperties", {"anyOf": [{"properties": {"a": {"const": 1}}, "required": ["a"]}, {"properties": {"b": {"const": 2}}, "required": ["b"]}], "unevaluatedProperties": {"type": "string"}}, ['{"a":1}', '{"a":1,"b":2}', '{"a":1,"b":3}', '{"a":1,"b":"x"}', '{"b":2,"c":"s"}', '{"b":2,"c":4}']),
    ("unevaluatedItems", {"allOf": [{"prefixItems": [{"type": "integer"}]}], "unevaluatedItems": {"type": "string"}}, ["[]", "[1]", '[1,"a"]', "[1,2]", '["a"]']),
    ("allOf", {"allOf": [{"type": "integer"}, {"minimum": 3}, {"maximum": 9}]}, ["3", "9", "10", "2", "5.5"]),
    ("allOf", {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"a": {"minimum": 4}, "b": {"type": "string"}}}]}, ['{"a":5}', '{"a":3}', '{"a":5,"b":1}', '{"b":"x","a":4}']),
    ("anyOf", {"anyOf": [{"type": "string", "maxLength": 2}, {"type": "integer"}]}, ['"ab"', '"abc"', "7", "7.5", "null"]),
    ("anyOf", {"type": "object", "properties": {"n": {"type": "integer"}}, "anyOf": [{"required": ["n"]}, {"required": ["m"]}]}, ['{"n":1}', '{"m":"x"}', "{}", '{"n":1,"m":2}', '{"n":"x","m":1}']),
    ("anyOf", {"anyOf": [closed(("k",), k={"const": "a"}, x={"type": "integer"}), closed(("k",), k={"const": "b"}, x={"type": "string"})]}, ['{"k":"a","x":1}', '{"x":1,"k":"a"}', '{"x":"s","k":"b"}', '{"x":"s","k":"a"}', '{"k":"b"}']),
    ("oneOf", {"oneOf": [{"type": "integer"}, {"minimum": 2}]}, ["1", "2.5", "3", "1.5"]),
    ("oneOf", {"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"}, ['{"a":1}', '{"b":1}', '{"a":1,"b":1}', "{}", '{"c":1,"a":0}']),
    ("oneOf", {"oneOf": [{"multipleOf": 3}, {"multipleOf": 5}], "type": "integer"}, ["3", "5", "15", "7", "30", "9"]),
    ("oneOf", {"oneOf": [closed(("k",), k={"const": 1}), closed(("k",), k={"const": 2}, v={})]}, ['{"k":1}', '{"k":2,"v":[]}', '{"k":1,"v":1}', '{"k":3}']),
    ("not", {"not": {"type": "string"}}, ["1", '"a"', "{}", "null"]),
    ("not", {"type": "integer", "not": {"enum": [2, 3]}}, ["1", "2", "3", "3.0", "4", "23"]),
    ("not", {"type": "string", "not": {"pattern": "^x"}}, ['"abc"', '"xbc"', '""', '"\\u0078"', '"ax"']),
    ("not", {"not": {"required": ["a"]}}, ["{}", '{"a":1}', '{"b":1}', "3"]),
    ("not", {"type": "object", "not": {"properties": {"a": {"type": "integer"}}}}, ['{"a":1}', '{"a":"x"}', "{}", '{"b":1,"a":null}']),
    ("not", {"type": "object", "not": {"additionalProperties": {"type": "integer"}}}, ['{"a":1}', '{"a":"x"}', "{}", '{"a":1,"b":[]}']),
    ("not", {"type": "array", "not": {"items": {"type": "integer"}}}, ["[]", "[1,2]", '[1,"a"]', '["a"]']),
    ("not", {"type": "array", "not": {"contains": {"const": 0}}}, ["[]", "[1]", "[1,0]"]),
    ("not", {"type": "array", "not": {"minItems": 2}}, ["[]", "[1]", "[1,2]"]),
    ("if", {"type": "object", "properties": {"k": {"enum": ["a", "b"]}, "v": {}}, "required": ["k"], "if": {"properties": {"k": {"const": "a"}}}, "then": {"properties": {"v": {"type": "integer"}}}, "else": {"required": ["v"]}}, ['{"k":"a"}', '{"k":"a","v":1}', '{"v":"x","k":"a"}', '{"k":"b"}', '{"k":"b","v":"x"}']),
    ("if", {"if": {"type": "string"}, "then": {"maxLength": 1}}, ['"a"', '"ab"', "1"]),
    ("$ref", {"$defs": {"n": {"type": "integer"}}, "type": "array", "items": {"$ref": "#/$defs/n"}}, ["[1]", '["a"]', "[]"]),
    ("$ref", {"$defs": {"n": {"type": "integer"}}, "$ref": "#/$defs/n", "minimum": 3}, ["3", "2", '"a"']),
    ("$ref", {"type": "object", "properties": {"child": {"$ref": "#"}, "v": {"type": "integer"}}, "required": ["v"], "additionalProperties": False}, ['{"v":1}', '{"v":1,"child":{"v":2,"child":{"v":3}}}', '{"v":1,"child":{}}', '{"child":{"v":1},"v":2}']),
    ("$ref", {"$defs": {"list": {"anyOf": [{"type": "null"}, {"type": "array", "prefixItems": [{}, {"$ref": "#/$defs/list"}], "items": False, "minItems": 2}]}}, "$ref": "#/$defs/list"}, ["null", "[1,null]", "[1,[2,[3,null]]]", "[1]", "[1,2]"]),
    ("$ref", {"$defs": {"a/b~c%": {"const": 1}}, "$ref": "#/$defs/a~1b~0c%25"}, ["1", "2"]),
    ("$anchor", {"$defs": {"x": {"$anchor": "here", "type": "null"}}, "items": {"$ref": "#here"}}, ["[null]", "[1]"]),
    ("$id", {"$id": "https://example.com/root", "$defs": {"x": {"$id": "other", "$defs": {"y": {"type": "string"}}, "type": "integer"}}, "anyOf": [{"$ref": "other"}, {"$ref": "https://example.com/other#/$defs/y"}]}, ["1", '"s"', "null"]),
    ("$dynamicRef", {"$id": "https://example.com/strict", "$dynamicAnchor": "node", "$ref": "tree", "unevaluatedProperties": False,
                     "$defs": {"tree": {"$id": "tree", "$dynamicAnchor": "node", "type": "object", "properties": {"v": {}, "c": {"type": "array", "items": {"$dynamicRef": "#node"}}}}}},
     ['{"v":1,"c":[{"v":2}]}', '{"v":1,"c":[{"w":2}]}', '{"w":1}', "{}"]),
    ("$schema", {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [{"type": "integer"}], "additionalItems": {"type": "string"}}, ["[1]", '[1,"a"]', "[1,2]", '["a"]']),
    ("$schema", {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"p": {"exclusiveMinimum": 0}}, "properties": {"a": {"$ref": "#/definitions/p", "maximum": 5}}, "dependencies": {"a": ["b"], "c": {"required": ["d"]}}}, ['{"a":1,"b":0}', '{"a":0,"b":0}', '{"a":9,"b":0}', '{"a":1}', '{"c":1}', '{"c":1,"d":2}']),
    ("$schema", {"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "minimum": 3, "exclusiveMinimum": True}, ["3", "4", "4.0", "2"]),
    # What Pydantic and OpenAI's helpers write.
    ("pydantic", {"$defs": {"Color": {"enum": ["red", "blue"], "title": "Color", "type": "string"}, "Point": {"properties": {"x": {"title": "X", "type": "number"}, "y": {"default": 0.0, "title": "Y", "type": "number"}}, "required": ["x"], "title": "Point", "type": "object"}},
                  "properties": {"c": {"$ref": "#/$defs/Color"}, "tags": {"items": {"type": "string"}, "title": "Tags", "type": "array", "uniqueItems": True}, "pair": {"maxItems": 2, "minItems": 2, "prefixItems": [{"type": "integer"}, {"type": "string"}], "title": "Pair", "type": "array"}, "p": {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}], "default": None}, "data": {"format": "binary", "title": "Data", "type": "string"}},
                  "required": ["c", "tags", "pair"], "title": "M", "type": "object"},
     ['{"c":"red","tags":["a","b"],"pair":[1,"x"],"p":{"x":1.5},"data":"zz"}', '{"c":"red","tags":["a","a"],"pair":[1,"x"]}', '{"c":"red","tags":[],"pair":["x",1]}', '{"c":"green","tags":[],"pair":[1,"x"]}', '{"c":"blue","tags":[],"pair":[1,"x"],"p":null}']),
]

# Schemas that are refused: what the message must contain.
REFUSED = [
    ({"properties": {"a/b": {"format": "regex"}}}, "#/properties/a~1b/format"),
    ({"pattern": "(a)\\1"}, "#/pattern"),
    ({"pattern": "["}, "#/pattern"),
    ({"$ref": "https://example.com/other.json"}, "#/$ref"),
    ({"items": {"$ref": "#/$defs/missing"}}, "#/items/$ref"),
    ({"$schema": "https://example.com/my-draft"}, "#/$schema"),
    ({"multipleOf": 0.123456789}, "#/multipleOf"),
    ({"multipleOf": 0}, "#/multipleOf"),
    ({"multipleOf": -1}, "#/multipleOf"),
    ({"minLength": -1}, "#/minLength"),
    ({"minLength": 1.5}, "#/minLength"),
    ({"minimum": "3"}, "#/minimum"),
    ({"exclusiveMinimum": True}, "#/exclusiveMinimum"),
    ({"type": "text"}, "#/type"),
    ({"type": 5}, "#/type"),
    ({"required": True}, "#/required"),
    ({"required": [1]}, "#/required"),
    ({"properties": []}, "#/properties"),
    ({"properties": {"a": 1}}, "#/properties"),
    ({"allOf": {}}, "#/allOf"),
    ({"enum": "a"}, "#/enum"),
    ({"not": {"uniqueItems": True}}, "uniqueItems"),
    ({"items": {"enum": [{"a": 1}, [1], None]}, "uniqueItems": True, "minItems": 4, "type": "array"}, "no value"),
    ({"prefixItems": [{"type": "string"}], "items": {"type": "boolean"}, "uniqueItems": True, "minItems": 4, "type": "array"}, "no value"),
    ({"$ref": "#"}, "refers to itself"),
    ({"allOf": [{"$ref": "#"}]}, "refers to itself"),
    ({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}, "refers to itself"),
    (False, "no value"),
    ({"type": "string", "enum": [1]}, "no value"),
    ({"minimum": 3, "maximum": 2, "type": "number"}, "no value"),
    ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "no value"),
    ({"type": "object", "properties": {"a": False}, "required": ["a"]}, "no value"),
    ({"type": "array", "items": False, "minItems": 1}, "no value"),
    ({"type": "integer", "minimum": 5, "maximum": 9, "multipleOf": 10}, "no value"),
    ({"extends": {}}, "#/extends"),
]


def spellings(text, random_):
    """The text, with white space, and with characters escaped."""
    value = json.loads(text)
    yield text
    if '"' not in text:
        yield text.replace(",", " ,\n ").replace("[", "[ ").replace("]", "\t]")
    elif json.loads(json.dumps(value)) == value and "1.0" not in text and "0.0" not in text:
        yield json.dumps(value, separators=(" , ", ": "), ensure_ascii=random_.random() < 0.5)


def main():
    random_ = random.Random(1)
    out = []
    for keyword, schema, texts in CASES:
        validator = jsonschema_rs.validator_for(schema, validate_formats=True)
        valid, invalid = [], []
        for text in texts:
            verdict = valid if validator.is_valid(json.loads(text)) else invalid
            verdict.extend(dict.fromkeys(spellings(text, random_)))
        assert valid and (invalid or schema in ({}, True)), schema
        out.append([keyword, schema, valid, invalid])
    with open(OUT, "w", encoding="utf-8") as f:
        f.write('{"cases": [\n')
        f.write(",\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in out))
        f.write('\n],\n"refused": [\n')
        f.write(",\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in REFUSED))
        f.write("\n]}\n")
    print(f"{OUT}: {len(out)} schemas, {sum(len(v) + len(i) for _, _, v, i in out)} texts, {len(REFUSED)} refused")


if __name__ == "__main__":
    main()
