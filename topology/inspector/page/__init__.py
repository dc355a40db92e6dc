"""The inspector's web page: plain HTML, CSS and JavaScript modules, served by every router."""
