"""The shop's own tests: `python example_project/manage.py test example_project.shop`."""
